"""Choice of the evidence that is kept of a call besides its answer: kinds, modes, limits, and their text form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal, ParamSpec, TypeAlias, TypeVar

from .._internal.arguments import validate_fields
from ..errors import UsageError
from ..playwright._evidence_kinds import KINDS, EvidenceKind
from ..protocol._times import parse_duration

P = ParamSpec("P")
T = TypeVar("T")

#: Mode of a kind of evidence: the calls of which it is kept. ``True`` and ``False`` are ``"on"`` and ``"off"``.
EvidenceMode: TypeAlias = Literal["off", "on", "on-failure"]
_MODES: Mapping[object, EvidenceMode] = {
    "off": "off",
    "on": "on",
    "on-failure": "on-failure",
    False: "off",
    True: "on",
}


@validate_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of each call, kept as artifacts besides its answer: ``connect(…, evidence=Evidence(trace="on"))``.

    ``trace`` is Playwright's (``playwright show-trace FILE``), ``video`` a WebM of the page, ``har`` the requests as
    HAR 1.2, ``console`` the console and the page's errors as text, ``screenshot`` a picture of the page at the end.
    Secrets are removed from all but the pictures (docs/evidence.md).

    The newest ``max_files`` files of a session, or of a store without sessions, are kept, each for at most ``max_age``
    seconds; ``None`` is no limit. Raises :class:`~transports.errors.UsageError` for an invalid value.
    """

    trace: EvidenceMode | bool = "off"
    video: EvidenceMode | bool = "off"
    har: EvidenceMode | bool = "off"
    console: EvidenceMode | bool = "off"
    screenshot: EvidenceMode | bool = "off"
    max_files: int | None = None
    max_age: float | None = None

    def __post_init__(self) -> None:
        for kind in KINDS:
            mode = getattr(self, kind)
            if not isinstance(mode, str | bool) or mode not in _MODES:
                raise UsageError(f'evidence: {kind} is "off", "on" or "on-failure", not {mode!r}')
        for name, limit in (("max_files", self.max_files), ("max_age", self.max_age)):
            if limit is not None and not limit > 0:
                raise UsageError(f"evidence: {name} must be above 0 (it is {limit})")

    def kinds(self, *, failed: bool | None = None) -> frozenset[EvidenceKind]:
        """Return the kinds to keep of a call that ``failed`` or not; with ``None``, the kinds to record."""
        modes = ("on",) if failed is False else ("on", "on-failure")
        return frozenset(kind for kind in KINDS if _MODES[getattr(self, kind)] in modes)


def read_evidence(text: str) -> Evidence:
    """Parse a choice such as ``trace,video=on-failure,max_files=200,max_age=7d``. A kind without a value is on."""
    choices: dict[str, object] = {}
    parts = [part.strip() for part in text.split(",")]
    for part in filter(None, parts):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name in choices:
            raise UsageError(f"evidence: {name} is given twice")
        if name in KINDS:
            choices[name] = value if equals else "on"
        elif name == "max_files" and re.fullmatch(r"[0-9]{1,9}", value):
            choices[name] = int(value)
        elif name == "max_age" and (seconds := parse_duration(value)) is not None:
            choices[name] = seconds
        else:
            raise UsageError(
                f"evidence: {part!r} is not understood; write kinds with commas between them, such as "
                f"trace,har=on-failure,max_files=200,max_age=7d; the kinds are {', '.join(KINDS)}"
            )
    return Evidence(**choices)  # type: ignore[arg-type]


def checked_evidence(text: str) -> str:
    """Return the text of a setting if it is valid. Raises :class:`ValueError`, for models of settings."""
    try:
        read_evidence(text)
    except UsageError as error:
        raise ValueError(error.message.removeprefix("evidence: ")) from error
    return text


@dataclass(frozen=True, slots=True)
class GeneralEvidence:
    """Default choice for many apps. The entry of an app in the settings file has precedence, and kinds that an app
    cannot give are left out."""

    choice: Evidence

    def kinds(self, *, failed: bool | None = None) -> frozenset[EvidenceKind]:
        return self.choice.kinds(failed=failed)


def evidence_for(chosen_here: Evidence | GeneralEvidence | None, entry: str, target: str) -> Evidence | None:
    """Return the evidence to keep in a session with ``target``; ``entry`` is the choice of the settings file.

    A choice for this session alone is returned unchanged, so that opening raises if the app cannot give it. Any other
    choice is reduced to the kinds that the app can give."""
    if isinstance(chosen_here, Evidence):
        return chosen_here
    if entry:
        choice = read_evidence(entry)
    elif chosen_here is not None:
        choice = chosen_here.choice
    else:
        return None
    without_page = ("ws://", "wss://", "mcp:", "mcp+", "replay:")
    if target.lower().startswith(without_page):
        return replace(choice, trace="off", video="off", har="off", screenshot="off")
    return choice


def with_default_evidence(connect: Callable[P, T], text: str) -> Callable[P, T]:
    """Return ``connect`` with the choice of ``text`` as the default of ``evidence=``."""
    evidence = read_evidence(text)
    if not evidence.kinds():
        return connect

    @wraps(connect)
    def connecting(*args: P.args, **options: P.kwargs) -> T:
        options.setdefault("evidence", GeneralEvidence(evidence))
        return connect(*args, **options)

    return connecting
