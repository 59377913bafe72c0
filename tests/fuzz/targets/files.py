"""Files that somebody else may have written: recordings, metadata of artifacts, settings, jobs of a batch."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from transports.adapters.recording.content import unpack, unpack_content
from transports.adapters.recording.entries import Answer, Failed, restore_error
from transports.adapters.recording.file import Reader, Recording, read_header
from transports.adapters.recording.script import Script
from transports.artifacts.metadata import Metadata
from transports.batch.job_format import job_document, parse_job
from transports.batch.running.reading import read_jobs
from transports.errors import ABPError
from transports.routing import RoutingConfig
from transports.session.config_file import read_config
from transports.session.retention import retention_settings
from transports.surfaces.mcp.options import Options

__all__ = ["jobs", "metadata", "recording", "settings"]

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
    Recording(path, reader.header.fields).scrubber().text("pin=1")
    script = Script(reader)
    for action in script.actions:
        with suppress(ABPError):
            script.take(action.ask)
        script.lines_between(action.start, action.end or script.end)
        script.pause_before(action.start)
        script.question_answered_at(action.start)
        if isinstance(action.outcome, Failed):
            assert isinstance(restore_error(action.outcome.error), ABPError)
        elif isinstance(action.outcome, Answer):
            with suppress(ABPError):
                unpack(reader, action.start, action.outcome.payload, action.outcome.leaves)
            for leaf in action.outcome.outputs:
                with suppress(ABPError):
                    unpack_content(reader, action.start, leaf)
    for action in script.actions:
        script.take(action.ask)


def metadata(data: bytes) -> None:
    """The file of an artifact's metadata. What can be read can be written and read again."""
    try:
        read = Metadata.decode(data, _ID)
    except ValueError:  # the caller reports it as Corrupt
        return
    assert Metadata.decode(read.encode(), _ID) == read
    assert isinstance(read.age_key, tuple)
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


def jobs(data: bytes) -> None:
    """Jobs of a batch, as lines and as a table: each is read again as what it is written as."""
    for suffix in ("jsonl", "csv"):
        with suppress(ABPError):
            for batch in read_jobs(_file(f"jobs.{suffix}", data), "memory:"):
                for job in batch:
                    assert parse_job(job_document(job)).key == job.key
