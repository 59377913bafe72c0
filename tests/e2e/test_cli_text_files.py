"""``abp call`` on apps that answer text as a file, with small data in files alone, and with compressed downloads."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.raw_server import Serve, reply, serve as raw
from webapp_fixture import serve

__all__ = ["raw"]

HELLO = {"content": "héllo 世界", "mimeType": "text/plain", "encoding": "utf-8"}


async def call(
    folder: Path, document: dict[str, object], *options: str, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run ``abp call`` on an app that answers ``{document}``; return its exit status and what it printed."""
    answer = json.dumps({"value": {"success": True, "data": {"document": document}}})
    async with serve() as app:
        target = [f"{app.ws_url}?faults", "fault.bad_answer", "--params", answer]
        command = [sys.executable, "-m", "transports.surfaces.cli", "call", *target, "--out", str(folder), *options]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **(env or {})}
        )
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


@pytest.mark.requirement("R0-9b", "R0-12c")
@pytest.mark.parametrize("way", ["option", "setting"])
async def test_with_small_data_in_files_alone_only_places_are_printed(tmp_path: Path, way: str) -> None:
    settings = tmp_path / "abp.toml"
    settings.write_text("[routing]\ninline_data = false\n")
    options = ["--inline-data", "off"] if way == "option" else []
    env = {"ABP_CONFIG": str(settings)} if way == "setting" else {}
    document: dict[str, object] = {"html": "<h1>" + "x" * 1206}  # {"document":…} has 1,234 characters
    status, printed = await call(tmp_path / "out", document, *options, env=env)
    (file,) = files(tmp_path / "out")
    assert (status, printed) == (0, f"Output saved to file: {file}\nSize: 1234 characters\n")
    assert json.loads(file.read_bytes()) == {"document": document}
    status, printed = await call(tmp_path / "out", document, "--json", *options, env=env)
    assert status == 0 and json.loads(printed)["data"]["path"] == str(file) and not re.search("<h1>|x{5}", printed)
    status, printed = await call(tmp_path / "out", document)
    assert status == 0 and "<h1>" in printed


async def test_a_compressed_download_is_taken_with_the_option_alone(raw: Serve, tmp_path: Path) -> None:
    content = b"north,1\n" * 5000
    server = await raw(reply(gzip.compress(content), Content_Encoding="gzip", Content_Type="text/csv"))
    reference: dict[str, object] = {"downloadUrl": server.url + "/a.csv", "mimeType": "text/csv", "size": len(content)}
    private = "--insecure-private-addresses"
    status, printed = await call(tmp_path / "out", reference, "--json", private)
    assert (status, json.loads(printed)["error"]["code"]) == (1, "DOWNLOAD_FAILED") and files(tmp_path / "out") == []
    status, printed = await call(tmp_path / "out", reference, "--json", private, "--accept-compression")
    (artifact,) = json.loads(printed)["artifacts"]
    assert (status, artifact["sha256"]) == (0, hashlib.sha256(content).hexdigest())
    assert server.sent("Accept-Encoding") == ["identity", "zstd, br, gzip, deflate"]
