"""Errors on stderr: one line each, and the lines of a difference."""

from __future__ import annotations

import ast
import inspect
import json
import re
import socket
import sys
from importlib import import_module
from pathlib import Path

import pytest

import transports
from tests.support.command_line import CommandLine
from tests.support.mcp_servers import FOLDER
from tests.support.rows import each_row
from transports import Browser, WebSocketTransport
from transports.errors import BrowserNotFound, replaced_arguments
from transports.playwright._diagnosis import explain_load_failure
from transports.surfaces.cli._output import OPTIONS
from webapp_fixture import Fixture

#: The module, whose package has a function of its name.
GATHER = import_module("transports.testing.conformance._gather")


def test_replay_difference_keeps_its_lines(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    assert abp("call", workbench.ws_url, "data.json", "-p", "csv=a\n1", "--record", file).status == 0
    ran = abp("call", f"replay:{file}", "data.json", "-p", "csv=\x1b[31mb\n2", "--json")
    message, *difference = ran.err.splitlines()
    assert ran.status == 1 and message.startswith("abp: data.json is not in ")
    assert message.endswith("record again if the difference is intended: [NOT_RECORDED]")
    assert '    -    "csv": "a\\n1"' in difference and '    +    "csv": "\\u001b[31mb\\n2"' in difference
    assert all(line.startswith("    ") for line in difference) and len(difference) > 5
    assert ran.document["error"]["details"]["diff"].count("\n") == len(difference) - 1


def test_misused_options_and_arguments_get_syntax_hints(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "there.pdf").mkdir()
    url = workbench.ws_url
    job = ("call", url, "job.run", "-p", "steps=1", "-p", "delay=1")
    for args, said in {
        (*job, "--out", "hi.pdf"): "--out takes a folder for the files, not a file; leave it out, and copy the stored",
        (*job, "--out", "-"): "`abp artifacts get NAME -` [INVALID_PARAMS]",
        (*job, "-p", f"label=@{picture}"): "or give a binary with --file KEY=PATH",
        (*job, "-p", "@all.json"): "; for all parameters of a file: --params @all.json [INVALID_PARAMS]",
        ("call", url, "file.digest", "-p", "file=a.png"): "'file' is a file: give it with --file KEY=PATH (in the",
        (*job, "html=x"): "unexpected extra argument(s) (html=x); see `abp call --help`",
        ("call", url): "missing argument 'CAPABILITY'; `abp capabilities TARGET` lists them; the form is",
        ("call", url, "job.run", "--tiemout", "5"): "no such option: --tiemout; did you mean --timeout?; see `abp call",
        ("call", url, "job.run", "--qqqqqq"): "no such option: --qqqqqq; see `abp call",
        ("mcp", "--http", "127.0.0.1:65536"): "--http 127.0.0.1:65536: give HOST:PORT of this machine",
        ("mcp", "--http", "127.0.0.1"): "--http 127.0.0.1: give HOST:PORT of this machine",
        ("mcp", "--http", "192.0.2.1:80"): "put a proxy with TLS before it",
        ("serve", "--retention", "max"): "--retention max: must be KEY=VALUE, such as max_session_bytes=500MB",
        ("serve", "--port", "80000"): "'--port': Input should be less than or equal to 65535; see",
        ("artifacts", "ls"): "no such command 'ls'; did you mean 'list'?; see `abp artifacts --help`",
    }.items():
        ran = abp(*args)
        assert ran.status == 2 and said in ran.err, (args, ran.err)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.png", "there.pdf"]
    for folder in ("there.pdf", "new.pdf/"):
        assert abp(*job, "-p", "label=2026", "--out", folder).status == 0


def test_mcp_command_at_terminal_explains_it_awaits_client(abp: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve_nobody(bridge: object) -> None:
        """As where the client is gone at once."""

    monkeypatch.setattr("transports.surfaces.mcp._bridge.serve_stdio", serve_nobody)
    ran = abp.at_terminal("mcp", script=lambda terminal: None)
    assert ran.status == 0 and "abp: an MCP client starts this command and speaks to it here; Ctrl-C ends it" in ran.err
    assert "starts this command" not in abp("mcp").err

    async def relay_nothing(upstream: object, shared: object) -> int:
        return 0

    monkeypatch.setattr("transports.surfaces.mcp.proxy._duplex.run_stdio", relay_nothing)
    ran = abp.at_terminal("proxy", "--", sys.executable, "-c", "", script=lambda terminal: None)
    assert "abp: an MCP client starts this command and speaks to it here; Ctrl-C ends it" in ran.err


def test_misspelt_parameter_prints_warning_on_stderr(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    line = "abp: warning: data.json: you gave 'csw', which its inputSchema does not name; did you mean 'csv'?\n"
    call = ("call", workbench.ws_url, "data.json", "-p", "csv=a\n1", "-p", "csw=1")
    ran, document = abp(*call), abp(*call, "--json")
    assert ran.status == 0 and ran.err == document.err == line and "csw" not in ran.out
    assert document.document["warnings"] == [line.removeprefix("abp: warning: ").rstrip()]
    each = tmp_path / "each.jsonl"
    each.write_text('{"csv": "b\\n1", "csw": 1}\n')
    assert line in abp("call", workbench.ws_url, "data.json", "--each", each).err
    missing = abp("call", workbench.ws_url, "data.json", "-p", "csw=1")
    assert missing.status == 2 and '"csv" is a required property' in missing.err
    assert "; you gave 'csw', which its inputSchema does not name; did you mean 'csv'? [INVALID_PARAMS]" in missing.err


def test_params_rejected_by_app_or_cli_are_both_usage_errors(
    abp: CommandLine, workbench: Fixture, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("no picture")
    ours = abp("call", workbench.ws_url, "image.info", "-p", "image=1", "--json")
    theirs = abp("call", workbench.ws_url, "image.info", "--file", f"image={note}", "--json")
    assert [ran.status for ran in (ours, theirs)] == [2, 2]
    assert [ran.document["error"]["code"] for ran in (ours, theirs)] == ["INVALID_PARAMS"] * 2
    assert abp("call", workbench.ws_url, "fault.error").status == 1  # no such capability here: the call failed


def test_timeout_error_names_option_to_extend_it(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    message = "no answer within 0.05 s; if it takes longer, raise --timeout (for all calls: ABP_CALL_TIMEOUT"
    ran = abp("call", workbench.ws_url, "fault.never", "--timeout", "0.05")
    assert ran.status == 1 and f"abp: fault.never: {message}" in ran.err
    each = tmp_path / "each.jsonl"
    each.write_text("{}\n")
    ran = abp("call", workbench.ws_url, "fault.never", "--timeout", "0.05", "--each", each, "--json")
    assert message in ran.err and message in ran.document["results"][0]["error"]["message"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_unprintable_result_exits_with_error(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    call = ("call", workbench.ws_url, "data.json", "-p", "csv=a\n1", "--out", tmp_path, *form)
    said = "abp: cannot write to standard output: it is closed; the work itself was done [INTERNAL_ERROR]\n"
    assert abp(*call).status == 0
    name = abp("artifacts", "list", "--store", tmp_path, "--json").document["artifacts"][0]["id"]
    with monkeypatch.context() as closed:
        closed.setattr("sys.stdout", None)  # as after >&-
        for command in (
            call,
            ("artifacts", "get", name, "--store", tmp_path),
            ("conformance", workbench.ws_url, "--no-calls"),
        ):
            ran = abp(*command)
            assert ran.status == 1 and ran.err.endswith(said), command


@each_row("command", ["mcp", "proxy -- cat"])
def test_mcp_over_a_closed_stdout_is_a_usage_error(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as after >&-
    ran = abp(*command.split())
    assert ran.status == 2
    assert "stdin or stdout is closed; an MCP client speaks to this command there" in ran.err


@each_row("command", ["fixture --port {}", "serve --port {}", "mcp --http 127.0.0.1:{}"])
def test_port_in_use_is_a_usage_error(abp: CommandLine, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = abp(*command.format(port).split())
    option = "--http 127.0.0.1:PORT" if command.startswith("mcp") else "--port"
    assert ran.status == 2 and ran.err.splitlines()[-1] == (
        f"abp: cannot listen on 127.0.0.1:{port}: port {port} is taken; end the program that listens there, or name "
        f"another port with {option}, 0 for a free one [ADDRESS_UNAVAILABLE]"
    )


@pytest.mark.parametrize(
    "command", ["call {} x", "capabilities {}", "conformance {}", "call {} x --transport postmessage"]
)
def test_refused_address_starts_no_browser_or_driver_and_is_not_retried(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    started: list[object] = []
    tried: list[object] = []

    class Launched(Browser):
        async def __aenter__(self) -> Launched:
            started.append(self)
            return await super().__aenter__()

    async def start_driver() -> None:
        started.append("driver")
        raise BrowserNotFound("no driver")

    async def connect(transport: WebSocketTransport) -> object:
        tried.append(transport)
        return await once(transport)

    monkeypatch.setattr("transports.playwright._process.start_driver", start_driver)
    monkeypatch.setattr("transports.playwright._source.Browser", Launched)
    monkeypatch.setattr(GATHER, "Browser", Launched)
    once = WebSocketTransport._connect
    monkeypatch.setattr(WebSocketTransport, "_connect", connect)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}/"
        for url in (f"http://{address}", f"ws://{address}")[: 1 if "postmessage" in command else 2]:
            ran = abp(*command.format(url).split(), "--json")
            assert ran.status == 1 and "start the app or correct the address [TRANSPORT_ERROR]" in ran.err
            assert ran.err.count("\n") == 1 and ran.document["error"]["code"] == "TRANSPORT_ERROR"
    assert started == [] and len(tried) == (0 if "postmessage" in command else 1)


#: Arguments of ``connect`` without an option, or of one that messages about pages and callbacks name.
_WITHOUT_OPTION = {"page", "context", "auth", "routing", "config", "target", "on_elicitation", "on_progress"}
_WITHOUT_OPTION |= {"on_notification", "requested_capabilities", "extension_page"}


@pytest.mark.load
def test_messages_name_no_argument_whose_option_cli_would_name() -> None:
    names = inspect.signature(transports.connect).parameters.keys() - _WITHOUT_OPTION
    argument = re.compile(rf"(?<![-\w?&;\"'])(?:{'|'.join(names)})=(?![\w=\"'{{])")
    root = Path(transports.__file__).parent
    unspelled = []
    for path in root.rglob("*.py"):
        if {"surfaces", "testing"} & set(path.relative_to(root).parts):
            continue
        if not argument.search(source := path.read_text(encoding="utf-8")):
            continue
        nodes = list(ast.walk(ast.parse(source)))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
        unspelled += [text for text in texts if isinstance(text, str) and text not in OPTIONS and argument.search(text)]
    assert unspelled == []


def test_cli_errors_give_no_python_api_advice() -> None:
    failed = "Page.goto: net::ERR_CERT_AUTHORITY_INVALID at https://127.0.0.1:8000/"
    assert "ignore_https_errors=True" in explain_load_failure(failed, "https://127.0.0.1:8000/")
    with replaced_arguments(OPTIONS):
        told = explain_load_failure(failed, "https://127.0.0.1:8000/")
    assert told == "its certificate is not trusted; have this system trust it"


@pytest.mark.slow
def test_missing_display_error_names_cli_option(
    abp: CommandLine, workbench: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    ran = abp("capabilities", workbench.url, "--headed")
    assert ran.err == (
        "abp: no display for a browser window; unset ABP_HEADLESS, or leave --headed out [BROWSER_ERROR]\n"
    )


def test_unwritable_folder_or_recording_error_names_its_option(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    ran = abp("call", workbench.ws_url, "file.list", "--out", tmp_path / "photo.png" / "sub")
    assert ran.err == (
        f"abp: {tmp_path}/photo.png/sub is not a folder; remove it, or name another folder with ABP_OUTPUT_DIR or "
        "--out [STORE_ERROR]\n"
    )
    assert not caplog.records
    ran = abp("call", workbench.ws_url, "export.pdf", "-p", "html=x", "--record", "/proc/rec.jsonl")
    assert ran.status == 1 and "cannot write the recording in /proc" in ran.err
    assert "record to another file" in ran.err and "--record" in ran.err and "ABP_OUTPUT_DIR" not in ran.err


@pytest.mark.load
def test_app_text_resembling_arguments_is_unchanged(abp: CommandLine, tmp_path: Path) -> None:
    own = "no view of text/html;profile=mcp-app; raise timeout=, give headers= and store="
    said = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "canned", "version": "1"},
        },
        "tools": [{"name": "go", "inputSchema": {"type": "object"}}],
        "results": {"go": {"content": [{"type": "text", "text": own}], "isError": True}},
    }
    (tmp_path / "said.json").write_text(json.dumps(said))
    ran = abp("call", f"mcp+stdio:{sys.executable} {FOLDER / 'canned.py'} {tmp_path / 'said.json'}", "go")
    assert ran.status == 1 and own in ran.err, ran.err


@each_row("arg", ["n\udcff", "--out=out\udcff", "-ptitle=\udce9t\udce9"])
def test_non_utf8_argument_is_rejected_before_sending(abp: CommandLine, arg: str) -> None:
    ran = abp("call", "http://127.0.0.1:9/", "--json", arg)
    assert ran.status == 2 and ran.err.startswith("abp: argument 4 is not UTF-8 (") and "\udcff" not in ran.err
    assert ran.document["error"]["code"] == "INVALID_PARAMS" and "write it in UTF-8" in ran.err
