"""The processes that read files of apps."""

import asyncio
import sys
from pathlib import Path

import pytest

from transports._internal import reader_programs, readers

_PROBE = """
def probe(*arguments):
    import resource
    limits = [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
    about = {"limits": limits, "isolated": sys.flags.isolated, "arguments": arguments}
    _write_output(about, sys.stdin.buffer.read())
    return len(arguments) - 1

_PROGRAMS = dict.fromkeys(_PROGRAMS, probe)
"""
_START = 'if __name__ == "__main__":'


async def test_reader_that_cannot_be_started_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system out of processes or memory refuses it, too. The result that is previewed must not be lost."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    assert await readers.run_reader("thumbnail", b"content", 7, 7) is None
    assert readers.run_reader_blocking("thumbnail", b"content", 7, timeout=5) is None


async def test_readers_run_isolated_with_resource_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource", reason="Windows has no limits")
    monkeypatch.setattr(readers, "__file__", str(tmp_path / "readers.py"))
    source = Path(reader_programs.__file__).read_text()
    assert _START in source
    (tmp_path / "reader_programs.py").write_text(source.replace(_START, _PROBE + _START))
    seconds = {"pdf_page": 10, "pdf_text": 15, "thumbnail": 15}
    *answers, failed = await asyncio.gather(
        *(readers.run_reader(name, b"content", 7) for name in seconds),
        readers.run_reader("pdf_page", b"content", 7, 8),
    )
    for answer, limit in zip(answers, seconds.values(), strict=True):
        assert answer == ({"limits": [1 << 30, limit], "isolated": 1, "arguments": [7]}, b"content")
    assert failed is None  # the exit status of the reader is that of the process
