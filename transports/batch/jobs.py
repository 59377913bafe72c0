"""One call of many: a :class:`Job`, known by a key that is made of what it asks for."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from ..binary.params import set_path
from ..errors import UsageError
from ..files import open_regular
from ..protocol.strict_json import JSONValue

__all__ = ["Job", "State", "shown_path"]

#: Characters of a path that a message shows.
_MAX_SHOWN = 200

_canonical = msgspec.json.Encoder(order="sorted").encode


class State(StrEnum):
    """What has become of a job. ``queued`` and ``leased`` are on the way, the others final."""

    QUEUED = "queued"
    #: A worker holds it, until its lease ends.
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    #: The app answered an error, or the kit refused the job before anything of it ran.
    FAILED = "failed"
    #: It was sent and its answer was lost, so it may have run; or it ran, and its answer could not be read or stored.
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the job any more by itself."""
        return self not in (State.QUEUED, State.LEASED)


@dataclass(frozen=True, slots=True)
class Job:
    """One call to make.

    ``params`` are JSON values. ``files`` maps places in the parameters (``image``, ``pages.cover``) to the files that
    go there. ``target`` is the app as :func:`transports.connect` takes it; ``None`` leaves it to the run.
    ``timeout`` in seconds is for the app's answer, ``None`` for the default of the session. A job that is
    ``idempotent`` may be sent again after its answer was lost. ``id`` and ``carried`` (other columns of the input) come
    back beside the outcome and mean nothing to the kit.
    """

    capability: str
    params: Mapping[str, JSONValue] = field(default_factory=dict)
    target: str | None = None
    id: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    timeout: float | None = None
    idempotent: bool = False
    carried: Mapping[str, JSONValue] = field(default_factory=dict)
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """The SHA-256 of what the job asks for, as hexadecimal digits: two jobs with one key are the same work.

        It is taken over the target, the capability, the parameters as canonical JSON (sorted keys, no spaces, as in
        RFC 8785) and the SHA-256 of each file's content. The first use reads the files, and blocks meanwhile. Raises
        :class:`~transports.errors.UsageError` for a file that cannot be read, and for parameters that are no JSON.
        """
        if not self._key:
            content = {place: _digest(place, path) for place, path in self.files.items()}
            try:
                asked = _canonical([self.target, self.capability, self.params, content])
            except (TypeError, ValueError, RecursionError) as error:
                raise UsageError(f"params cannot be written as JSON ({error}); give files as files=") from error
            object.__setattr__(self, "_key", hashlib.sha256(asked).hexdigest())
        return self._key

    def call_params(self) -> dict[str, object]:
        """Return the parameters of the call, with each file in its place as a :class:`~pathlib.Path`. Raises
        :class:`~transports.errors.UsageError` for a place that is inside of a value without fields."""
        params: dict[str, object] = copy.deepcopy(dict(self.params)) if self.files else dict(self.params)
        for place, path in self.files.items():
            set_path(params, place.split("."), path)
        return params


def _digest(place: str, path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"files.{place}: {shown_path(path)} cannot be read ({error.strerror or error}); correct the path"
        ) from error


def shown_path(path: Path) -> str:
    """Return a path for a message: a long one is cut, and what no terminal shows is escaped."""
    text = str(path)
    shown = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN // 2]}…{text[-_MAX_SHOWN // 2 :]}"
    return shown if shown.isprintable() else ascii(shown)
