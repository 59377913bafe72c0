"""``abp call`` on apps that answer text as a file."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from webapp_fixture import serve

HELLO = {"content": "héllo 世界", "mimeType": "text/plain", "encoding": "utf-8"}


async def call(folder: Path, document: dict[str, object], *options: str) -> tuple[int, str]:
    """Run ``abp call`` on an app that answers ``{document}``; return its exit status and what it printed."""
    answer = json.dumps({"value": {"success": True, "data": {"document": document}}})
    async with serve() as app:
        target = [f"{app.ws_url}?faults", "fault.bad_answer", "--params", answer]
        command = [sys.executable, "-m", "transports.surfaces.cli", "call", *target, "--out", str(folder), *options]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.exists() else []


async def test_declared_text_is_a_text_file(tmp_path: Path) -> None:
    status, printed = await call(tmp_path / "out", {**HELLO, "size": 13})
    (file,) = files(tmp_path / "out")
    assert file.suffix == ".txt" and file.read_bytes() == "héllo 世界".encode()
    assert (status, printed.splitlines()) == (0, [f"File saved: {file}", "Type: text/plain", "Size: 13 bytes"])


async def test_the_json_document_has_the_text(tmp_path: Path) -> None:
    status, printed = await call(tmp_path / "out", {**HELLO, "size": 13, "filename": "hello.txt"}, "--json")
    document = json.loads(printed)
    (artifact,) = document["artifacts"]
    assert (status, artifact["field"], artifact["filename"], artifact["size_bytes"]) == (0, "document", "hello.txt", 13)
    assert document["data"]["document"]["text"] == "héllo 世界"


@pytest.mark.parametrize("size", [8, 9])
async def test_a_size_in_characters_leaves_no_file(tmp_path: Path, size: int) -> None:
    status, printed = await call(tmp_path / "out", {**HELLO, "size": size}, "--json")
    assert (status, json.loads(printed)["error"]["code"]) == (1, "SIZE_MISMATCH")
    assert files(tmp_path / "out") == []
