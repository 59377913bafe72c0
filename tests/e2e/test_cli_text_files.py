"""``abp call`` on apps that answer text as a file, with small data in files alone, and with compressed downloads."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, in_thread
from tests.support.raw_server import RawServer, listening, reply
from tests.surfaces.cli.conftest import abp as abp, workbench as workbench
from webapp_fixture import Fixture

Call = Callable[..., tuple[int, str]]
HELLO = {"content": "héllo 世界", "mimeType": "text/plain", "encoding": "utf-8"}


@pytest.fixture
def call(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> Call:
    """Run ``abp call`` on an app that answers ``{document}``; return its exit status and what it printed."""

    def run(document: dict[str, object], *options: str) -> tuple[int, str]:
        answer = json.dumps({"value": {"success": True, "data": {"document": document}}})
        target = (f"{workbench.ws_url}?faults", "fault.bad_answer")
        ran = abp("call", *target, "--params", answer, "--out", tmp_path / "out", *options)
        return ran.status, ran.out

    return run


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.exists() else []


@pytest.mark.requirement("R0-9b", "R0-12c")
@pytest.mark.parametrize("way", ["option", "setting"])
def test_inline_data_off_prints_only_locations(
    call: Call, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "abp.toml"
    settings.write_text("[routing]\ninline_data = false\n")
    options = ["--inline-data", "off"] if way == "option" else []
    if way == "setting":
        monkeypatch.setenv("ABP_CONFIG", str(settings))
    document: dict[str, object] = {"html": "<h1>" + "x" * 1206}  # {"document":…} has 1,234 characters
    status, printed = call(document, *options)
    (file,) = files(tmp_path / "out")
    assert (status, printed) == (0, f"Output saved to file: {file}\nSize: 1234 characters\n")
    assert json.loads(file.read_bytes()) == {"document": document}
    status, printed = call(document, "--json", *options)
    assert status == 0 and json.loads(printed)["data"]["path"] == str(file) and not re.search("<h1>|x{5}", printed)
    monkeypatch.delenv("ABP_CONFIG", raising=False)
    status, printed = call(document)
    assert status == 0 and "<h1>" in printed


CONTENT = b"north,1\n" * 5000


@pytest.fixture
def compressed() -> Iterator[RawServer]:
    answer = reply(gzip.compress(CONTENT), Content_Encoding="gzip", Content_Type="text/csv")
    with in_thread(listening(answer)) as server:
        yield server


def test_compressed_download_requires_accept_compression(call: Call, compressed: RawServer, tmp_path: Path) -> None:
    address = compressed.url + "/a.csv"
    reference: dict[str, object] = {"downloadUrl": address, "mimeType": "text/csv", "size": len(CONTENT)}
    private = "--insecure-private-addresses"
    status, printed = call(reference, "--json", private)
    assert (status, json.loads(printed)["error"]["code"]) == (1, "DOWNLOAD_FAILED") and files(tmp_path / "out") == []
    status, printed = call(reference, "--json", private, "--accept-compression")
    (artifact,) = json.loads(printed)["artifacts"]
    assert (status, artifact["sha256"]) == (0, hashlib.sha256(CONTENT).hexdigest())
    assert compressed.sent("Accept-Encoding") == ["identity", "zstd, br, gzip, deflate"]
