"""Files that somebody else may have written: recordings, metadata of artifacts, settings, jobs of a batch."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path

from transports.artifacts._ref import Metadata, OtherCase, age_key
from transports.batch import Job
from transports.batch._files import read_jobs
from transports.batch._jobs import Consent, job_document, parse_job
from transports.errors import ABPError
from transports.protocol._strict_json import encode_json
from transports.recording._file import (
    Answer,
    Failed,
    Reader,
    Recording,
    read_header,
    restore_error,
    unpack,
    unpack_content,
)
from transports.recording._replay import RecordedActions
from transports.routing import RoutingConfig
from transports.session._settings import read_config, retention_settings
from transports.surfaces.mcp._options import Options

_ID = "export_0123456789ab"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="abp-fuzz-")  # removed when the process ends, if it is not killed


def _file(name: str, data: bytes) -> Path:
    path = Path(_folder().name, name)
    path.write_bytes(data)
    return path


def recording(data: bytes) -> None:
    """A recording, read to its end and asked for what it holds."""
    path = _file("recording", data)
    read_header(path)
    reader = Reader(path)
    Recording(path, reader.header.fields).scrubber().redact_text("pin=1")
    script = RecordedActions(reader)
    for action in script.actions:
        with suppress(ABPError):
            script.take_next(action.operation)
        script.lines_between(action.start, action.end or script.end)
        script.pause_before(action.start)
        if isinstance(action.outcome, Failed):
            assert isinstance(restore_error(action.outcome.error), ABPError)
        elif isinstance(action.outcome, Answer):
            with suppress(ABPError):
                unpack(reader, action.start, action.outcome.payload, action.outcome.leaves)
            for leaf in action.outcome.outputs:
                with suppress(ABPError):
                    unpack_content(reader, action.start, leaf)
    for action in script.actions:
        script.take_next(action.operation)


def metadata(data: bytes) -> None:
    """The file of an artifact's metadata. What can be read can be written and read again."""
    try:
        read = Metadata.decode(data, _ID)
    except (ValueError, OtherCase):  # the caller reports the first as Corrupt, and takes the other for a missing file
        return
    assert Metadata.decode(read.encode(), _ID) == read
    assert isinstance(age_key(read), tuple)
    read.ref().as_dict()


def settings(data: bytes) -> None:
    """A file ``abp.toml``."""
    path = _file("abp.toml", data)
    file = read_config(path)
    with suppress(ABPError):
        routing = RoutingConfig.parse(file.table("routing"), "abp.toml: routing")
        routing.policy("Tableau", presets=True)
    with suppress(ABPError):
        retention_settings(file=file)
    options = Options.load(config=path)
    options.shows("abp_export_pdf")
    assert options.max_request_bytes > 0 and options.files


@cache
def _consent() -> Consent:
    """What jobs of somebody else may do, with a folder from which links lead out."""
    folder = Path(_folder().name, "files")
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.png").write_bytes(b"png")
    (folder / "out").symlink_to(_folder().name)
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    return Consent(target="memory:", folder=folder.resolve())


def jobs(data: bytes) -> None:
    """Jobs of a batch, as lines, as a table, and as the keys, files and target of a line: each is read again as what it
    is written as. Of somebody else's none starts a program, and none sends a file from elsewhere."""
    consent = _consent()
    for name, content, expected in (
        ("jobs.jsonl", data, consent),
        ("jobs.csv", data, None),
        ("wild.jsonl", _wild_line(data), consent),
        ("wild.jsonl", _wild_line(data), None),
    ):
        with suppress(ABPError):
            for job in chain.from_iterable(read_jobs(_file(name, content), "memory:", expected)):
                assert parse_job(job_document(job)).key == job.key
                with suppress(ABPError):
                    job.call_params()
                if expected is not None:
                    _check_harmless(job)


def _wild_line(data: bytes) -> bytes:
    """A line whose keys, paths and target are pieces of the input."""
    first, second, third, *rest = [*data.decode("utf-8", "replace").split("\n"), "", "", ""]
    line = {"capability": "do", f"files.{first}": second, f"params.{second}": first, "timeout": "".join(rest)}
    return encode_json({**line, first: second, **({"target": third} if third else {})})


def _check_harmless(job: Job) -> None:
    folder, target = _consent().folder, job.target or ""
    assert folder is not None and all(path.resolve().is_relative_to(folder) for path in job.files.values())
    assert all(path.is_file() for path in job.files.values())
    assert target == "memory:" or "://" in target or target.replace("-", "").replace("_", "").isalnum()
    assert not target.lower().startswith(("mcp+stdio", "extension", "replay", "file"))
    assert not job.files or target == "memory:" or "://" not in target
