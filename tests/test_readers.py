"""The processes that read files of apps."""

import asyncio
from pathlib import Path

import pytest

from transports._internal.readers import _reader_process as reader_process

_PROGRAM = """
import json, resource, sys
limits = [resource.getrlimit(one)[0] for one in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
print(json.dumps({"limits": limits, "isolated": sys.flags.isolated, "arguments": sys.argv[1:]}))
sys.stdout.write(sys.stdin.read())
sys.exit(len(sys.argv[1]) - 1)
"""


async def test_readers_run_isolated_with_resource_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource", reason="Windows has no limits")
    monkeypatch.setattr(reader_process, "__file__", str(tmp_path / "reader_process.py"))
    seconds = {"pdf_page": 10, "pdf_text": 15, "thumbnail": 15}
    for name in seconds:
        (tmp_path / f"{name}.py").write_text(_PROGRAM)
    *answers, failed = await asyncio.gather(
        *(reader_process.run_reader(name, b"content", 7) for name in seconds),
        reader_process.run_reader("pdf_page", b"content", 12),
    )
    for answer, limit in zip(answers, seconds.values(), strict=True):
        assert answer == ({"limits": [1 << 30, limit], "isolated": 1, "arguments": ["7"]}, b"content")
    assert failed is None  # the exit status of the reader is that of the process
