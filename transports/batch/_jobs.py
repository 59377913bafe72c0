"""Jobs of a batch, their states, their outcomes and their permissions."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Self, cast

import msgspec

from .._internal import notebook
from .._internal.files import open_regular
from ..artifacts._ref import ArtifactRef, files_table
from ..artifacts.local._tree import open_beneath
from ..errors import (
    ABPError,
    BinaryError,
    CapabilityError,
    ConnectFailed,
    ProtocolError,
    StoreError,
    UsageError,
    may_have_run,
    spelled,
)
from ..protocol._find_content import MAX_DEPTH
from ..protocol._params import set_path
from ..protocol._plain_text import is_address, is_page, redact_url
from ..protocol._strict_json import JSONValue, decode_json, decode_user_json, is_deeper, parser_limits
from ..protocol._times import MAX_TIMEOUT, is_timeout
from ..routing._result import Result
from ..session._attempts import NOT_RUN
from ..session._named_apps import is_app_name

_canonical = msgspec.json.Encoder(order="sorted").encode


class State(StrEnum):
    """State of a job. ``queued`` and ``leased`` are transient; the others are final."""

    QUEUED = "queued"
    #: A worker holds it, until its lease ends.
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    #: The app answered with an error, or the kit refused the job before any part of it ran.
    FAILED = "failed"
    #: The answer to a sent job was lost, so it may have run; or it ran and its answer could not be read or stored.
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True if the job stays in this state unless the user acts."""
        return self not in (State.QUEUED, State.LEASED)


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a batch.

    ``params`` are JSON values. ``files`` maps places in the parameters (``image``, ``pages.cover``) to the files to
    insert there. ``target`` is an app as :func:`transports.connect` accepts it; ``None`` means the target of the run.
    ``timeout`` limits the wait for the app's answer, in seconds; ``None`` means the session's default. An
    ``idempotent`` job may be sent again after its answer was lost. ``id`` and ``carried`` (other columns of the input)
    are returned beside the outcome and mean nothing to the kit.
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
        """SHA-256 of the request in hexadecimal digits. Two jobs with the same key are the same work.

        The hash covers the target, the capability, the parameters as canonical JSON (RFC 8785: sorted keys, no spaces)
        and the SHA-256 of each file's content. The first access reads the files and blocks. Raises
        :class:`~transports.errors.UsageError` for an unreadable file and for parameters other than JSON.
        """
        if not self._key:
            digests = {place: _file_digest(place, path) for place, path in self.files.items()}
            try:
                with parser_limits():
                    request = _canonical([self.target, self.capability, self.params, digests])
            except (TypeError, ValueError) as error:
                raise UsageError(f"params cannot be written as JSON ({error}); give files as files=") from error
            object.__setattr__(self, "_key", hashlib.sha256(request).hexdigest())
        return self._key

    def call_params(self) -> dict[str, object]:
        """Return the parameters of the call, with each file in its place as a :class:`~pathlib.Path`.

        Raises :class:`~transports.errors.UsageError` for a place inside a value without fields."""
        params: dict[str, object] = dict(self.params)
        if self.files:
            params = copy.deepcopy(params)
        for place, path in self.files.items():
            set_path(params, place.split("."), path)
        return params


def require_job(job: object) -> Job:
    if not isinstance(job, Job):
        raise UsageError(f"each job must be a Job, such as Job('export.pdf', {{…}}), not {type(job).__name__}")
    return job


def _file_digest(place: str, path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"files.{place}: {shown_path(path)} cannot be read ({error.strerror or error}); correct the path"
        ) from error


def shown_path(path: Path) -> str:
    """Return a path for a message: shortened, and with escapes for characters that cannot be printed."""
    text = str(path)
    max_chars = 200
    if len(text) > max_chars:
        text = f"{text[:100]}…{text[-100:]}"
    if not text.isprintable():
        return ascii(text)
    return text


#: Fields of one line, row or object, both the kit's own and carried ones. Each carried field becomes a column.
MAX_FIELDS = 1000
#: Values of a boolean field. The keys ``True`` and ``False`` also match the numbers 1 and 0.
_BOOLEANS: Mapping[object, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}


def job_document(job: Job) -> dict[str, JSONValue]:
    """Return the job as a JSON object for :func:`parse_job`, without unset fields."""
    document: dict[str, JSONValue] = {**job.carried, "capability": job.capability, "params": dict(job.params)}
    if job.target is not None:
        document["target"] = job.target
    if job.id is not None:
        document["id"] = job.id
    if job.files:
        document["files"] = {place: str(path) for place, path in job.files.items()}
    if job.timeout:
        document["timeout"] = job.timeout
    if job.idempotent:
        document["idempotent"] = True
    return document


def parse_job(document: Mapping[str, object], *, target: str | None = None, folder: Path | None = None) -> Job:
    """Return the job described by an object, with its own ``target`` before the given one.

    The fields are as in :class:`.Job`. Because cells of a table are text, ``params`` may be JSON text, a column
    ``params.title`` is one parameter (JSON if it is valid JSON, otherwise text), ``files.image`` is one file, and empty
    cells are ignored. Other fields are carried along. Paths of files are made absolute, relative to ``folder`` or, by
    default, to the working folder.

    Raises :class:`~transports.errors.UsageError` with the name of the field, also for more than 64 levels and for more
    than 1,000 fields; ``params`` may have more.
    """
    require_few_fields(document)
    fields = {name: value for name, value in document.items() if value not in (None, "")}
    files: dict[str, object] = dict(_parse_object(fields, "files"))
    params = dict(_parse_object(fields, "params"))
    carried_fields = _distribute_fields(fields, params, files)
    if is_deeper([params, carried_fields], MAX_DEPTH):
        raise UsageError(f"params are nested deeper than {MAX_DEPTH} levels")

    job_id = _parse_id(fields)
    if "capability" not in fields:
        raise UsageError("capability is missing; each job needs one, such as export.pdf")
    return Job(
        capability=_require_text("capability", fields["capability"]),
        params=params,
        target=_require_text("target", fields.get("target", "")) or target,
        id=job_id,
        files=_absolute_paths(files, folder or Path()),
        timeout=_parse_timeout(fields.get("timeout")),
        idempotent=_parse_idempotent(fields.get("idempotent", False)),
        carried=carried_fields,
    )


def _distribute_fields(
    fields: Mapping[str, object], params: dict[str, JSONValue], files: dict[str, object]
) -> dict[str, JSONValue]:
    """Add fields such as ``params.title`` to ``params`` and ``files``, and return the fields that are carried along."""
    fields_of_job = ("capability", "params", "target", "id", "files", "timeout", "idempotent")
    carried_fields: dict[str, JSONValue] = {}
    for name, value in fields.items():
        object_name, _, place = name.partition(".")
        if object_name == "params" and place:
            set_path(params, place.split("."), _json_or_text(value))
        elif object_name == "files" and place:
            files[place] = value
        elif name not in fields_of_job:
            carried_fields[name] = cast(JSONValue, value)
    return carried_fields


def _absolute_paths(files: Mapping[str, object], folder: Path) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for place, path in files.items():
        paths[place] = (folder / _require_text(f"files.{place}", path)).absolute()
    return paths


def require_few_fields(names: Sized) -> None:
    if len(names) > MAX_FIELDS:
        raise UsageError(f"it has more than {MAX_FIELDS:,} fields; put parameters into the object params")


def _parse_object(fields: Mapping[str, object], name: str) -> Mapping[str, JSONValue]:
    """Return the object in the field ``name``, which may be JSON text; it is empty if the field is missing."""
    examples = {"params": '{"html": "Hi"}', "files": '{"image": "photo.png"}'}
    advice = f"write an object such as {examples[name]}"
    value = fields.get(name, {})
    if isinstance(value, str):
        if not value.lstrip().startswith(("{", "[")):
            raise UsageError(f"{name} is a text; {advice}")
        value = decode_user_json(value, name, fix=advice)
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be a JSON object such as {examples[name]}")
    return value


def _require_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text")
    return value


def _parse_id(fields: Mapping[str, object]) -> str | None:
    job_id = fields.get("id")
    if job_id is None:
        return None
    if isinstance(job_id, int) and not isinstance(job_id, bool):
        return str(job_id)
    return _require_text("id", job_id)


def _json_or_text(value: object) -> JSONValue:
    """Return the cell of a table as JSON if it is the text of a JSON value, otherwise unchanged."""
    if isinstance(value, str):
        with suppress(ProtocolError):
            return cast(JSONValue, decode_json(value))
    return cast(JSONValue, value)


def _parse_timeout(value: object) -> float | None:
    if value is None:
        return None

    seconds = math.nan
    is_number_or_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    if is_number_or_text:
        # Text may be no number, and an integer may be too large for a float.
        with suppress(ValueError, OverflowError):
            seconds = float(cast(str | float, value))
    if not is_timeout(seconds):
        raise UsageError(f"timeout must be a positive number of seconds, at most {MAX_TIMEOUT:,}")
    return seconds


def _parse_idempotent(value: object) -> bool:
    if isinstance(value, str):
        value = value.lower()
    if not isinstance(value, bool | int | str) or value not in _BOOLEANS:
        raise UsageError("idempotent must be true or false")
    return _BOOLEANS[value]


#: Argument of the :class:`asyncio.CancelledError` of a job that was cancelled before any part of it was sent.
NOT_SENT = "nothing of the job was sent"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a job. ``state`` is final.

    ``result`` is the result of the call, if any. ``error_code`` and ``error`` (its message) are set unless the job
    succeeded. ``milliseconds`` is the time of all ``attempts``. ``artifacts`` are the files in the store, also after an
    error. ``retryable`` means that the same job may be sent again: the error may be temporary, and either no part of
    the job has run or the job is idempotent. ``retry_after`` is the wait requested by the app, in seconds.
    """

    job: Job
    state: State
    result: Result | None = None
    error_code: str | None = None
    error: str | None = None
    attempts: int = 1
    milliseconds: float = 0.0
    artifacts: tuple[ArtifactRef, ...] = ()
    retry_after: float | None = None
    retryable: bool = False

    @classmethod
    def of_result(cls, job: Job, result: Result, *, attempts: int = 1, milliseconds: float = 0.0) -> Self:
        """Return the outcome of a succeeded job."""
        files = tuple(result.artifacts.values())
        return cls(job, State.SUCCEEDED, result, attempts=attempts, milliseconds=milliseconds, artifacts=files)

    @classmethod
    def of_error(
        cls, job: Job, error: Exception, *, sent: bool = True, attempts: int = 1, milliseconds: float = 0.0
    ) -> Self:
        """Return the outcome of a job after ``error``.

        ``sent`` is false if the call cannot have been sent, as after an error of connecting. A job that ran is
        ``unknown`` if its answer could not be read or stored, unless it is idempotent: ``failed`` means that it may be
        run again by hand."""
        if not isinstance(error, ABPError):
            return cls(
                job,
                State.UNKNOWN if sent else State.FAILED,
                error_code="INTERNAL_ERROR",
                error=f"{type(error).__name__}: {error}",
                attempts=attempts,
                milliseconds=milliseconds,
            )

        # A CapabilityError proves that the app received the call, even if the app's error says that it was not sent.
        may_have_been_sent = sent and (isinstance(error, CapabilityError) or error.sent is not False)
        state = State.FAILED
        if may_have_been_sent and _is_result_lost(error, job):
            state = State.UNKNOWN

        is_refused = isinstance(error, CapabilityError) and error.code in NOT_RUN
        has_not_run = not may_have_been_sent or is_refused
        is_temporary = error.retryable or isinstance(error, ConnectFailed)
        return cls(
            job,
            state,
            error_code=error.code,
            error=error.message,
            attempts=attempts,
            milliseconds=milliseconds,
            artifacts=_stored_artifacts(error),
            retry_after=error.retry_after,
            retryable=is_temporary and (has_not_run or job.idempotent),
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("state", self.state.value)]
        if self.error_code is not None:
            rows.append(("error", f"{self.error or ''} [{self.error_code}]".lstrip()))
        rows += [("attempts", self.attempts), ("time", f"{self.milliseconds / 1000:,.2f} s")]
        if self.result is not None:
            # The capability is the title of the result, so it is not repeated here.
            return notebook.table(("", ""), rows, title=self.job.id or "") + self.result._repr_html_()

        title = self.job.capability
        if self.job.id:
            title += f" ({self.job.id})"
        table = notebook.table(("", ""), rows, title=title)
        if not self.artifacts:
            return table
        return table + files_table([("", ref) for ref in self.artifacts])

    def files(self) -> list[dict[str, object]]:
        """Return ``artifacts`` as JSON objects, each with its place in the answer (``field``) if known."""
        if self.result is None or len(self.result.artifacts) != len(self.artifacts):
            return [ref.as_dict() for ref in self.artifacts]
        fields = self.result.artifacts.keys()
        return [{"field": field, **ref.as_dict()} for field, ref in zip(fields, self.artifacts, strict=True)]


def _is_result_lost(error: ABPError, job: Job) -> bool:
    """Return whether a job that was sent may have run without a usable result, and may not be run again by hand."""
    if may_have_run(error):
        return True
    is_unusable = isinstance(error, BinaryError | ProtocolError | StoreError)
    return is_unusable and not job.idempotent


def _stored_artifacts(error: ABPError) -> tuple[ArtifactRef, ...]:
    if error.result is None:
        return ()
    return tuple(ref for ref in error.result.artifacts.values() if isinstance(ref, ArtifactRef))


@dataclass(frozen=True, slots=True)
class Consent:
    """The user's permissions for jobs of an untrusted input or ledger.

    Allowed targets are addresses (``http(s)://``, ``ws(s)://``, ``mcp+http(s)://``), apps of the settings file and the
    run's own ``target``; with ``programs`` also targets that start a program, load an extension or read a file. Files
    must be in ``folder``; without a folder, jobs may not send files. Files go to the run's own target and to apps of
    the settings file; with ``any_target`` also to any target named by the job itself.
    """

    programs: bool = False
    target: str | None = None
    folder: Path | None = None
    any_target: bool = False

    def checked(self, job: Job) -> Job:
        """Return the job with the real paths of its files. Blocks if it has files. Raises
        :class:`~transports.errors.UsageError` with the code ``PERMISSION_DENIED``."""
        target = job.target or ""
        is_allowed = self.programs or target == self.target or is_address(target) or is_app_name(target)
        if not is_allowed and not is_page(target.removeprefix("mcp+")):
            raise _denied_error(
                f"target: {_shown_target(target)} is neither an address (http, ws) nor the name of an app; give it as "
                f"the run's own with {spelled('target=')}, or allow jobs to start programs and read files: "
                f"{spelled('allow_programs=')}"
            )
        if not job.files:
            return job
        return replace(job, files=self._checked_files(job.files, target))

    def _checked_files(self, files: Mapping[str, Path], target: str) -> Mapping[str, Path]:
        """Return the real paths of a job's files. Refuse files outside of the folder, or for a target without
        consent."""
        place = next(iter(files))
        if self.folder is None:
            raise _denied_error(f"files.{place}: name the folder of the jobs' files with {spelled('files_from=')}")
        if not self.any_target and target != self.target and not is_app_name(target):
            raise _denied_error(
                f"files.{place}: the line names {_shown_target(target)} itself, and files go only to the run's own "
                f"target; if it is the run's target, give it with {spelled('target=')}; else name the folder of the "
                f"files with {spelled('files_from=')}"
            )
        folder = self.folder.resolve()
        return {place: self._checked_path(place, path, folder) for place, path in files.items()}

    def _checked_path(self, place: str, path: Path, folder: Path) -> Path:
        refused = _denied_error(
            f"files.{place}: {shown_path(path)} is not a regular file in {folder}; correct the path, or name another "
            f"folder with {spelled('files_from=')}"
        )
        with open_beneath(str(path), (folder,), refused) as file:
            return Path(str(file.name))


def _shown_target(target: str) -> str:
    return repr(redact_url(target)[:200])


def _denied_error(message: str) -> UsageError:
    return UsageError(message, code="PERMISSION_DENIED")
