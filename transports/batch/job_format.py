"""Jobs as JSON objects, as a line of the input and a row of the ledger have them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import cast

from ..binary.detect import MAX_DEPTH
from ..binary.params import set_path
from ..errors import ProtocolError, UsageError
from ..protocol.durations import MAX_TIMEOUT, is_timeout
from ..protocol.strict_json import JSONValue, decode_given, decode_json, is_deeper
from .jobs import Job

__all__ = ["MAX_FIELDS", "job_document", "parse_job", "require_few_fields"]

#: Fields of one line, row or object, those of our own and those that are carried along: each carried one is a column.
MAX_FIELDS = 1000
_OWN = ("capability", "params", "target", "id", "files", "timeout", "idempotent")
_BOOLEANS: Mapping[object, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}


def job_document(job: Job) -> dict[str, JSONValue]:
    """Return the job as a JSON object that :func:`parse_job` reads, without what is not set."""
    document: dict[str, JSONValue] = {**job.carried, "capability": job.capability, "params": dict(job.params)}
    own: dict[str, JSONValue] = {
        "target": job.target,
        "id": job.id,
        "files": {place: str(path) for place, path in job.files.items()},
        "timeout": job.timeout,
        "idempotent": job.idempotent,
    }
    return {**document, **{name: value for name, value in own.items() if value not in (None, {}, False)}}


def parse_job(document: Mapping[str, object], *, target: str | None = None, folder: Path | None = None) -> Job:
    """Return the job that an object describes.

    ``capability`` is needed; ``params``, ``target``, ``id``, ``files``, ``timeout`` and ``idempotent`` are as
    in :class:`.Job`. As a table has only texts in its cells, ``params`` may be JSON text, a column ``params.title`` is
    one parameter (JSON if it is valid JSON, else text), ``files.image`` one file, and an empty cell is not there. Other
    fields are carried along. ``target`` is for jobs that name none. Paths of files are made absolute, from ``folder``,
    else from the working folder.

    Raises :class:`~transports.errors.UsageError`, which names the field, also for more than 64 levels and for more than
    1,000 fields; ``params`` may have more.
    """
    require_few_fields(document)
    given = {name: value for name, value in document.items() if value not in (None, "")}
    files: dict[str, object] = dict(_object(given, "files"))
    params = dict(_object(given, "params"))
    carried: dict[str, JSONValue] = {}
    for name, value in given.items():
        field, dot, place = name.partition(".")
        if dot and place and field == "params":
            set_path(params, place.split("."), _json_or_text(value))
        elif dot and place and field == "files":
            files[place] = value
        elif name not in _OWN:
            carried[name] = cast(JSONValue, value)
    if is_deeper([params, carried], MAX_DEPTH):
        raise UsageError(f"params are nested deeper than {MAX_DEPTH} levels")
    return Job(
        capability=_text(given, "capability"),
        params=params,
        target=_text(given, "target", "") or target,
        id=str(given["id"]) if isinstance(given.get("id"), str | int) else _text(given, "id", "") or None,
        files={place: (folder or Path()).joinpath(_text(files, place, where="files.")).absolute() for place in files},
        timeout=_seconds(given.get("timeout")),
        idempotent=_boolean(given.get("idempotent", False)),
        carried=carried,
    )


def require_few_fields(names: Sized) -> None:
    """Raise :class:`~transports.errors.UsageError` for more names of fields than one job may have."""
    if len(names) > MAX_FIELDS:
        raise UsageError(f"it has more than {MAX_FIELDS:,} fields; put parameters into the object params")


def _object(given: Mapping[str, object], name: str) -> Mapping[str, JSONValue]:
    value = given.get(name, {})
    if isinstance(value, str):
        value = decode_given(value, name, fix="write an object such as {}")
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be a JSON object such as {{}}")
    return value


def _text(given: Mapping[str, object], name: str, default: str | None = None, *, where: str = "") -> str:
    value = given.get(name, default)
    if value is None:
        raise UsageError(f"{where}{name} is missing; each job needs one, such as export.pdf")
    if not isinstance(value, str):
        raise UsageError(f"{where}{name} must be text")
    return value


def _json_or_text(value: object) -> JSONValue:
    if isinstance(value, str):
        try:
            return cast(JSONValue, decode_json(value))
        except ProtocolError:
            return value
    return cast(JSONValue, value)


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(cast(float, value)) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not is_timeout(seconds):
        raise UsageError(f"timeout must be a positive number of seconds, at most {MAX_TIMEOUT:,}")
    return seconds


def _boolean(value: object) -> bool:
    key = value.lower() if isinstance(value, str) else value
    if not isinstance(key, bool | int | str) or key not in _BOOLEANS:
        raise UsageError("idempotent must be true or false")
    return _BOOLEANS[key]
