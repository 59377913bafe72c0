"""``abp`` with apps: calls, their files, their errors, what a terminal shows, discovery, and an MCP server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.test_cli import Cli, abp as abp, quick as quick
from tests.routing.http.test_discovery import LINK, json_reply, manifest, page, site
from tests.support import command_line
from tests.support.command_line import CommandLine, in_thread
from tests.support.mcp_over_http import tableau_server
from tests.support.mcp_servers.tableau import PDF, VIEW
from tests.support.pages import app_page, serve_answers
from tests.support.pdf import text_of
from tests.support.raw_server import listening
from transports.playwright._find import find_browser

pytestmark = pytest.mark.browser

PAGE = app_page("async wait() { await fetch('/called'); await new Promise(() => {}); }")


@dataclass
class Site:
    """A small site beside the reference app: ``/`` is an app with a call that never ends, ``/hang`` never answers.
    ``seen`` tells which paths were asked for."""

    url: str = ""
    seen: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.path)
        if request.path == "/hang":
            await asyncio.to_thread(self.closing.wait)
        if request.path not in ("/", "/called"):
            raise web.HTTPNotFound
        return web.Response(text=PAGE if request.path == "/" else "", content_type="text/html")


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    with in_thread(serve_answers(site.answer)) as site.url:
        try:
            yield site
        finally:
            site.closing.set()


@pytest.fixture(scope="module")
def workbench() -> Iterator[str]:
    """The reference app in a thread: commands and blocking sessions have the event loop of this one."""
    with command_line.serving() as served:
        yield served.url


def over_websocket(url: str) -> str:
    """The address of the reference app for those that need no browser."""
    return url.replace("http", "ws") + "abp"


REFERENCE = {**dict.fromkeys(("field", "id", "uri", "path", "filename", "mime_type", "sha256"), str), "size_bytes": int}
ANSWER = {"success": bool, "capability": str, "transport": str, "data": dict, "duration_ms": float}
ANSWER |= {"warnings": list, "artifacts": list}


def kinds(document: dict[str, object]) -> dict[str, type]:
    return {name: type(value) for name, value in document.items()}


def test_cli_pdf_call_prints_documented_json(abp: Cli, quick: CommandLine, workbench: str) -> None:
    ran = quick("call", workbench, "export.pdf", "--params", '{"html":"<h1>Hi</h1>"}', "--json")
    assert (ran.status, ran.err) == (0, "")
    document = ran.document
    assert kinds(document) == {**ANSWER, "response_metadata": dict, "effects": list}
    assert list(document) == [*ANSWER, "response_metadata", "effects"]
    assert [effect["kind"] for effect in document["effects"]] == ["print"]
    assert (document["success"], document["capability"], document["transport"]) == (True, "export.pdf", "playwright")
    assert 0 < document["duration_ms"] < 60_000 and document["warnings"] == []
    (reference,) = document["artifacts"]
    assert kinds(reference) == REFERENCE
    path = Path(reference["path"])
    content = path.read_bytes()
    assert path.parent == abp.out and path.name == reference["filename"] and content.startswith(b"%PDF-")
    assert reference["uri"] == f"artifact://{reference['id']}" and reference["mime_type"] == "application/pdf"
    assert reference["size_bytes"] == len(content) and reference["sha256"] == hashlib.sha256(content).hexdigest()
    assert reference["field"] == "document"
    assert text_of(path) == "Hi"


def test_cli_reads_limit_from_setting_and_params_from_stdin(abp: Cli, quick: CommandLine, workbench: str) -> None:
    socket = over_websocket(workbench)
    small = {"ABP_MAX_ARTIFACT_BYTES": "99999"}
    limited = quick("call", socket, "file.generate", "-p", "bytes=100000", "--json", env=small)
    assert limited.status == 1 and limited.document["error"]["code"] == "TOO_LARGE"
    assert "99999" in limited.complaint.replace(",", "") and "ABP_MAX_ARTIFACT_BYTES" in limited.complaint
    assert abp.files() == []

    data = quick("call", socket, "data.json", "--params", "-", stdin=b'{"csv": "a\\n1\\n2"}')
    assert (data.status, data.err) == (0, "")
    answer, saved = data.out.splitlines()
    written = Path(saved.removeprefix("Output saved to file: ")).read_text(encoding="utf-8")
    assert json.loads(answer) == json.loads(written) and json.loads(answer)["count"] == 2
    only_file = quick("call", socket, "data.json", "--params", '{"csv": "a\\n1"}', "--inline-data", "off")
    assert re.fullmatch(r"Output saved to file: \S+\nSize: \d+ characters\n", only_file.out)


@pytest.mark.requirement("R4-16h")
def test_cli_call_stores_into_bucket_and_reads_back(
    quick: CommandLine, workbench: str, tmp_path: Path, memory_bucket: str
) -> None:
    env = {"ABP_STORE": f"{memory_bucket}/team/blue"}
    params = ("-p", "megabytes=3", "-p", "filename=three.bin")
    called = quick("call", over_websocket(workbench), "file.generate", *params, "--json", env=env).document
    (artifact,) = called["artifacts"]
    assert (artifact["path"], artifact["filename"], artifact["size_bytes"]) == (None, "three.bin", 3 << 20)
    shown = quick("artifacts", "show", artifact["id"], "--json", env=env).out
    assert artifact["sha256"] in shown and "file.generate" in shown
    assert artifact["id"] in quick("artifacts", "list", "--json", env=env).out
    target = tmp_path / "back.bin"
    assert quick("artifacts", "get", artifact["id"], target, env=env).status == 0
    assert hashlib.sha256(target.read_bytes()).hexdigest() == artifact["sha256"]
    assert quick("artifacts", "fsck", "--json", env=env).document["problems"] == []
    assert quick("artifacts", "rm", artifact["id"], env=env).status == 0
    assert artifact["id"] not in quick("artifacts", "list", "--json", env=env).out


def test_cli_failures_print_one_line_and_leave_no_files(abp: Cli, quick: CommandLine, workbench: str) -> None:
    before = abp.put(b"before")
    listing = abp.files()
    socket = over_websocket(workbench)
    setting = {"ABP_CALL_TIMEOUT": "400", "ABP_LOG_LEVEL": "INFO"}
    ran = {
        "lying": quick("call", socket, "fault.wrong_size", "--json"),
        "silent": quick("call", socket, "fault.never", "--timeout", "0.5", "--json"),
        "unknown": quick("call", socket, "export.pfd", "--json"),
        "setting": quick("call", socket, "fault.never", "--json", env=setting),
    }
    expected = {
        "lying": ("SIZE_MISMATCH", "declared", "nothing was stored"),
        "silent": ("TIMEOUT", "fault.never", "within 0.5 s"),
        "unknown": ("UNKNOWN_CAPABILITY", "did you mean", "export.pdf"),
        "setting": ("TIMEOUT", "fault.never", "within 0.4 s"),
    }
    for name, (code, problem, fix) in expected.items():
        document, line = ran[name].document, ran[name].err.splitlines()[-1]
        assert ran[name].status == 1
        assert document == {"success": False, "error": document["error"], "cancelled": False}, (name, document)
        assert document["error"]["code"] == code and document["error"]["retryable"] is (code == "TIMEOUT")
        assert problem in line and fix in line and line.endswith(f"[{code}]"), line
        if name != "setting":
            assert line == ran[name].complaint
    assert abp.files() == listing and Path(str(before.path)).read_bytes() == b"before"
    assert ran["unknown"].document["error"]["alternatives"].count("export.pdf") == 1
    # what an app says reaches the terminal as words, in one line; the document has it as it was
    said = {"success": False, "error": {"code": "EVIL", "message": "a\n\x1b[31mred\x9b\nb"}}
    evil = quick("call", socket, "fault.bad_answer", "--params", json.dumps({"value": said}), "--json")
    assert evil.status == 1 and evil.document["error"]["code"] == "EVIL"
    assert "\x1b" not in evil.complaint and "\x9b" not in evil.complaint and "red" in evil.complaint
    assert "\x1b[31m" in evil.document["error"]["message"]


def test_capabilities_and_doctor_commands_list_app_and_browser(abp: Cli, quick: CommandLine, workbench: str) -> None:
    text = quick("capabilities", over_websocket(workbench))
    listed = quick("capabilities", over_websocket(workbench), "--json")
    lines = text.out.splitlines()
    document = listed.document
    names = [capability["name"] for capability in document["capabilities"]]
    assert len(lines) > 15
    assert lines[0] == "Workbench 1.0.0 (dev.abp.workbench)" and [line.split()[0] for line in lines[1:]] == names
    assert document["success"] is True and document["app"]["name"] == "Workbench" and "export.pdf" in names
    assert document["transport"] == "websocket" and "html" in json.dumps(document["capabilities"])
    assert abp.files() == []
    facts = quick("doctor", "--json").document
    assert facts["success"] is facts["webmcp"] is True and facts["problems"] == [] and facts["browser_version"]
    assert facts["self_test"] == {"ok": True, "bytes": 1 << 20}
    assert [file for file in abp.files() if not file.startswith(".abp/locks/")] == []


@pytest.mark.slow
def test_doctor_names_missing_webmcp(quick: CommandLine, tmp_path: Path) -> None:
    found = find_browser()
    assert found is not None
    without_webmcp = tmp_path / "chromium"
    without_webmcp.write_text(f'#!/bin/sh\nexec "{found.path}" "$@" --disable-features=WebMCP\n')
    without_webmcp.chmod(0o700)
    healthy = quick("doctor", env={"ABP_BROWSER": str(without_webmcp)})
    assert (healthy.status, healthy.err) == (0, "")
    for fact in (
        *("abp-transports", "playwright", "browser version", "self-test        ok"),
        "(can be written, read and deleted)",
        "webmcp           off: this browser has none; use Chromium 149 or newer",
        "needs --enable-features=WebMCP",
    ):
        assert fact in healthy.out
    assert re.search(r"browser version +\S*\d+\.\d", healthy.out)


def test_terminal_shows_progress_bar_and_stdout_stays_clean(
    quick: CommandLine, workbench: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    hostile = "[/b] \x1b]0;title\x07 [red]stage"
    pairs = ("-p", "steps=6", "-p", "delay=150", "-p", f"label={hostile}")
    args = ("call", over_websocket(workbench), "job.run", *pairs, "--json")
    piped = quick(*args, env={"FORCE_COLOR": "", "TERM": "xterm"})
    abp = CommandLine({"COLUMNS": "100", "ABP_STORE": "none:"}, monkeypatch, capfdbinary)
    shown = abp.at_terminal(*args, script=lambda _: None, term="xterm-256color")
    assert shown.status == piped.status == 0
    assert shown.document["data"] == piped.document["data"]
    seen = shown.err
    assert "job.run" in seen and "[red]stage" in seen and "[/b]" in seen and "\x1b]0;" not in seen
    assert "\r" in seen and "Traceback" not in seen
    assert piped.err == ""


def test_demo_stores_results_of_all_calls(abp: Cli, quick: CommandLine) -> None:
    ran = quick("demo", "--out", abp.out, "--megabytes", "1")
    assert ran.status == 0, ran
    rows = [line for line in ran.out.splitlines() if " playwright " in line]
    assert len(rows) >= 12 and all(Path(row.split()[-1]).is_file() for row in rows)
    kept = [abp.out / name for name in abp.files() if not name.startswith(".abp")]
    size = sum(path.stat().st_size for path in kept)
    assert f" results of 16 calls, in {len(kept)} files, {size:,} bytes, in {abp.out}" in ran.out
    assert "[16/16]" in ran.err and "SHA-256 are those of its reference" in ran.out and "NOT AS STORED" not in ran.out
    assert all(line.startswith("abp: ") for line in ran.err.splitlines())


# --- discovery --------------------------------------------------------------------------------------------------------


def test_discover_prints_reference_app(abp: Cli, quick: CommandLine) -> None:
    with command_line.serving() as fixture:
        ran, as_json = quick("discover", fixture.url), quick("discover", fixture.strict_url, "--json")
    first, *listed, last = ran.out.splitlines()
    assert (ran.status, ran.err) == (0, "")
    assert re.fullmatch(r"Workbench \S+ \(\S+\)", first)
    assert last == f"ABP 0.1, from {fixture.url}abp-manifest.json"
    assert any(re.fullmatch(r"  export\.pdf +Print HTML as a PDF.*", line) for line in listed)
    assert len({re.match(r"  \S+ +", line).end() for line in listed}) == 1  # type: ignore[union-attr]
    assert not abp.out.exists()

    document = as_json.document
    assert (as_json.status, as_json.err) == (0, "")
    keys = ["success", "app", "abp", "title", "page_url", "manifest_url", "capabilities", "warnings"]
    assert list(document) == keys
    capabilities = document.pop("capabilities")
    assert document.pop("app")["name"] == "Workbench" and document == {
        "success": True,
        "abp": "0.1",
        "title": "Workbench",
        "page_url": fixture.strict_url,
        "manifest_url": fixture.url + "abp-manifest.json",
        "warnings": [],
    }
    (pdf,) = [listed for listed in capabilities if listed["name"] == "export.pdf"]
    assert set(pdf) == {"name", "description", "inputSchema", "outputSchema", "experimental", "deprecated"}
    assert pdf["inputSchema"]["type"] == "object"


def test_page_without_manifest_is_reported(quick: CommandLine) -> None:
    with in_thread(listening(site({"/": page("")}))) as server:
        ran = quick("discover", f"{server.url}/", "--json")
        missing = quick("discover", f"{server.url}/nothing")
    assert ran.status == 1
    error = ran.document["error"]
    assert ran.document == {"success": False, "error": error, "cancelled": False}
    assert error["code"] == "DISCOVERY_FAILED" and error["details"] == {"url": f"{server.url}/"}
    assert ran.complaint == f"abp: {error['message']} [DISCOVERY_FAILED]"
    assert 'no <link rel="abp-manifest" href="…"> in its head' in ran.complaint
    assert (missing.status, missing.out) == (1, "")
    assert "answered 404 Not Found [DISCOVERY_FAILED]" in missing.complaint


def test_discover_warnings_go_to_stderr_and_document(quick: CommandLine) -> None:
    body = manifest({"name": "old", "deprecated": True}, {}, {"name": "\x1b[31mred", "experimental": True}, abp="3.1")
    with in_thread(listening(site({"/": page(), "/m.json": json_reply(body)}))) as server:
        ran, text = quick("discover", server.url, "--json"), quick("discover", server.url)
    assert ran.status == 0 and [c["name"] for c in ran.document["capabilities"]] == ["old", "\x1b[31mred"]
    assert len(ran.document["warnings"]) == 2
    assert ran.err == "".join(f"abp: {warning}\n" for warning in ran.document["warnings"])
    assert text.err.count("\n") == 2 and "newer than 0.1" in text.err
    assert "[deprecated]" in text.out and "[experimental]" in text.out and "\x1b" not in text.out


def test_manifest_link_to_private_address_is_blocked(quick: CommandLine) -> None:
    with (
        in_thread(listening(json_reply(), host="127.0.0.2")) as other,
        in_thread(listening(page(LINK.replace("/m.json", f"{other.url}/m.json")))) as server,
    ):
        ran = quick("discover", server.url)
        assert ran.status == 1 and "[BLOCKED_ADDRESS]" in ran.complaint and other.connects == 0
        ran = quick("discover", server.url, "--json", env={"ABP_ALLOW_PRIVATE_ADDRESSES": "1"})
    assert ran.status == 0 and json.loads(ran.out)["success"] is True


# --- an MCP server ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tableau() -> Iterator[str]:
    """The server with workbooks, over HTTP."""
    with in_thread(tableau_server()) as served:
        yield served


def document(quick: CommandLine, *args: object) -> Any:
    done = quick(*args, "--json")
    assert done.status == 0, done.err
    return done.document


def test_cli_lists_and_reads_resources_and_calls_mcp_server_like_any_app(
    quick: CommandLine, tableau: str, tmp_path: Path
) -> None:
    listed = document(quick, "resources", tableau)
    assert (len(listed["resources"]), listed["resources"][0]["uri"]) == (26, VIEW)
    assert listed["templates"][0]["uriTemplate"] == "tableau://notes/{number}"
    lines = quick("resources", tableau).out.splitlines()
    assert lines[0].endswith("has 26 resources and 3 templates of addresses")
    assert lines[-4] == f"tableau://files/7.pdf       application/pdf  {len(PDF):,} bytes  7.pdf"

    out = ("--out", tmp_path)
    uris = ["--read", "tableau://files/7.pdf", "--read", "tableau://notes/1"]
    pdf, note = document(quick, "resources", tableau, *uris, *out)["results"]
    (artifact,) = pdf["artifacts"]
    assert hashlib.sha256(Path(artifact["path"]).read_bytes()).hexdigest() == hashlib.sha256(PDF).hexdigest()
    assert note["data"]["contents"][0]["text"] == "This is tableau://notes/1"
    done = quick("resources", tableau, "--read", "tableau://views/gone")
    assert (done.status, done.out) == (1, "") and "not found" in done.err

    called = document(quick, "call", tableau, "download_workbook", "-p", "id=a", *out)
    assert (called["transport"], called["artifacts"][0]["filename"]) == ("mcp", "Sales Dashboard.pdf")
    names = [one["name"] for one in document(quick, "capabilities", tableau)["capabilities"]]
    assert {"download_workbook", "resources.read"} <= set(names)
