"""Options that every command takes, and those of the connection."""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.rows import each_row
from transports import UsageError
from transports.artifacts import ArtifactStore
from transports.surfaces.cli import Stopped, handle_signals
from transports.surfaces.cli._commands import COMMANDS, load_command
from webapp_fixture import Fixture

#: The module, whose package has a function of its name.
GATHER = import_module("transports.testing.conformance._gather")


@each_row("group", ["", "artifacts", "batch", "calls", "init"])
def test_command_descriptions_are_not_truncated(group: str, abp: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    ran = abp(*group.split(), "--help")
    commands = ran.out.partition("Commands:")[2].splitlines()[1:]
    assert ran.status == 0 and len(commands) > 1 and [line for line in commands if line.endswith("...")] == []


@each_row("command", ["", "artifacts open"])
def test_help_forms_print_same_usage(abp: CommandLine, command: str) -> None:
    shown = abp(*command.split(), "-h")
    assert shown.status == 0 and shown.out.startswith(f"Usage: abp {command}".rstrip()) and "-h, --help" in shown.out
    assert shown.out == abp("help", *command.split()).out == abp(*command.split(), "--help").out
    assert abp("help", "cal").status == 2


def test_usage_is_shown_without_arguments(abp: CommandLine) -> None:
    bare = abp()
    assert bare.status == 2 and "Usage: abp" in bare.out and "130 interrupted" in " ".join(bare.out.split())
    assert all(abp(name, "--help").status == 0 for name in COMMANDS)


def test_command_list_shows_first_sentence_of_help() -> None:
    listed = {name: command.help for name, command in COMMANDS.items()}
    assert listed == {name: load_command(name).get_short_help_str(80) for name in COMMANDS}


def test_every_command_accepts_verbose_and_quiet(abp: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[object] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: levels.append(options["level"]))
    assert "no artifacts" in abp("artifacts", "list", "-v").err
    assert "no artifacts" in abp("-vv", "artifacts", "list").err
    assert abp("artifacts", "list", "-q").err == ""
    assert "no artifacts" in abp("artifacts", "list").err  # the next command begins anew
    monkeypatch.setenv("ABP_LOG_LEVEL", "debug")
    assert abp("artifacts", "show", "nothing", "-q").err.endswith("[ARTIFACT_NOT_FOUND]\n")  # an error is shown
    abp("artifacts", "list")
    assert levels == ["INFO", "DEBUG", "ERROR", "WARNING", "ERROR", "DEBUG"]


def test_version_output_includes_browsers(abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.write_text("#!/bin/sh\necho Chromium 1.2.3\n")
    browser.chmod(0o700)
    monkeypatch.setenv("ABP_BROWSER", str(browser))
    ran = abp("--version")
    ours, theirs = ran.out.splitlines()
    assert ours.startswith("abp ") and ours[4].isdigit() and theirs == f"browser: Chromium 1.2.3 ({browser})"
    assert abp("-V") == ran
    monkeypatch.setenv("ABP_BROWSER", "/nonexistent")
    ran = abp("--version")
    assert ran.status == 0 and "correct ABP_BROWSER" in ran.out


@each_row("command", ["capabilities", "conformance --no-calls"])
def test_token_and_headers_are_sent_with_handshake(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, command: str
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    name, *more = command.split()
    given = (*more, "--token", f"@{token}", "--header", "X-Team: blue: 1", "--json")
    ran = abp(name, workbench.ws_url, *given)
    assert ran.status == 0 and ran.document["success"] and "s3cret" not in ran.out + ran.err
    sent = {name.lower(): value for name, value in workbench.handshakes[-1].headers.items()}
    assert (sent["authorization"], sent["x-team"]) == ("Bearer s3cret", "blue: 1")


@each_row(
    ("args", "message"),
    [
        (("ws://127.0.0.1:9/", "--header", "s3cret"), "a --header is not of the form 'NAME: VALUE'"),
        (("ws://127.0.0.1:9/", "--header", ": s3cret"), "a --header is not of the form 'NAME: VALUE'"),
        (("ws://127.0.0.1:9/", "--token", "@/no/s3cret"), "correct the file name after @"),
        (("ws://127.0.0.1:9/", "--token", "s3cret", "--header", "authorization: s3cret"), "are mutually exclusive"),
        (("http://127.0.0.1:9/", "--token", "s3cret"), "--token or --header cannot be combined with a page"),
        (("http://127.0.0.1:9/", "--token", "s3cret"), "sign in with --storage-state or --profile"),
    ],
)
def test_unsendable_header_options_are_rejected(abp: CommandLine, args: tuple[str, ...], message: str) -> None:
    for command in (("call", args[0], "x"), ("conformance", args[0])):
        ran = abp(*command, *args[1:])
        assert ran.status == 2 and message.removesuffix(" or --profile") in ran.err
        assert "s3cret" not in ran.err.replace("@/no/s3cret", "").replace("/no/s3cret", "")


def test_serve_options_set_shared_browsers_files_and_runs(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = abp("serve", "--batch", str(tmp_path / "no-run"))
    assert missing.status == 2 and "give the folder of a run, or a folder of runs" in missing.err
    given: list[object] = []
    stores: set[str] = set()

    def pooled(connect: object, browsers: int | None, store: ArtifactStore, **_: object) -> None:
        given.append(browsers)
        stores.add(store.url)
        raise UsageError("enough")

    monkeypatch.setattr("transports.surfaces.shared._detached.pooled", pooled)
    for command in ("mcp", "serve"):
        abp(command)
        monkeypatch.setenv(f"ABP_{command.upper()}_BROWSERS", "3")
        abp(command)
        abp(command, "--browsers", "4")
    assert given == [None, 3, 4] * 2
    stores.clear()
    abp("serve", "--out", "memory:")
    abp("mcp", "--out", tmp_path / "other")
    assert stores == {"memory:", (tmp_path / "other").as_uri()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--browser-server", "ws://127.0.0.1:3000"), {"browser_server": "ws://127.0.0.1:3000"}),
        (
            ("--cdp-url", "wss://h/", "--token", "s", "--header", "X-Team: b"),
            {"cdp_url": "wss://h/", "headers": {"X-Team": "b", "Authorization": "Bearer s"}},
        ),
        (("--profile", "p", "--adapter", "a.js"), {"profile": Path("p"), "adapter": Path("a.js")}),
        (
            ("--headed", "--storage-state", "s", "--browser", "firefox", "--accept-compression"),
            {"headless": False, "storage_state": Path("s"), "browser": "firefox", "accept_compression": True},
        ),
    ],
)
@pytest.mark.requirement("R6-3i")
def test_all_commands_pass_same_connection_options(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: dict[str, object]
) -> None:
    connected: list[dict[str, object]] = []

    def connect(target: str, **options: object) -> None:
        connected.append({name: value for name, value in options.items() if value is not None})
        raise UsageError("enough")

    monkeypatch.setattr("transports.session._connect.connect", connect)
    monkeypatch.setattr("transports.playwright._process.start_driver", None)
    page = "http://127.0.0.1:9/"
    for command in (("call", page, "x"), ("capabilities", page), ("shell", page), ("view", page, "x")):
        assert abp(*command, *options).status == 2
    assert [{**one, "store": ""} for one in connected] == [{"transport": "auto", "store": "", **expected}] * 4


@pytest.mark.requirement("R6-3i")
def test_conformance_window_follows_headed_option_and_setting(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[object] = []

    class Launched:
        def __init__(self, **options: object) -> None:
            launched.append(options.get("headless"))
            raise UsageError("enough")

    async def listens(url: str) -> None:
        pass

    monkeypatch.setattr(GATHER, "Browser", Launched)
    monkeypatch.setattr(GATHER, "require_listener", listens)
    abp("conformance", "http://127.0.0.1:9/", "--headed")
    abp("conformance", "http://127.0.0.1:9/")
    monkeypatch.setenv("ABP_HEADLESS", "false")
    abp("conformance", "http://127.0.0.1:9/")
    assert launched == [False, True, False]


@pytest.mark.parametrize(("final", "come"), [(False, True), (True, True), (True, False)])
def test_later_signals_do_not_interrupt_process_exit(final: bool, come: bool) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        with suppress(Stopped), handle_signals(final=final):
            if come:
                signal.raise_signal(signal.SIGTERM)
        after = [signal.getsignal(number) for number in numbers]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert after == ([signal.SIG_IGN] * len(numbers) if final and come else before)


@each_row(
    ("given", "seconds"), [("5", 5), ("0.5", 0.5), ("5s", 5), ("2m", 120), ("1h", 3600), ("1e2", 100), ("1000000", 1e6)]
)
def test_cli_duration_accepts_units(given: str, seconds: float) -> None:
    for command, option in ((["call"], "timeout"), (["conformance"], "timeout"), (["batch", "run"], "deadline")):
        if command == ["conformance"] and seconds > 3600:
            continue
        args = {"call": ["t", "c"], "conformance": ["t"], "batch": ["jobs", "--out", "run"]}[command[0]]
        made = load_command(command[0])
        for name in command[1:]:
            made = made.commands[name]
        assert made.make_context(command[-1], [*args, f"--{option}", given]).params[option] == seconds


@each_row("given", ["soon", "0", "1000001", "nan", ""])
def test_invalid_timeout_error_lists_valid_forms(abp: CommandLine, given: str) -> None:
    ran = abp("call", "http://127.0.0.1:9/", "x", f"--timeout={given}")
    assert ran.status == 2 and "'--timeout'" in ran.err
    assert "0.001 and 1,000,000" in ran.err and "5s, 2m, 1h or 7d" in ran.err


def test_command_group_without_command_lists_its_commands(abp: CommandLine) -> None:
    for group in ("artifacts", "batch", "calls", "init"):
        ran = abp(group)
        assert ran.status == 2 and ran.err.startswith("abp: missing command; the commands are "), ran


def test_out_and_store_options_are_aliases(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    for option in ("--out", "--store"):
        folder = tmp_path / option.strip("-")
        assert abp("call", workbench.ws_url, "export.pdf", "-p", "html=x", option, folder).status == 0
        assert [path.name for path in folder.iterdir() if path.suffix == ".pdf"] == ["document.pdf"]
        assert "document.pdf" in abp("artifacts", "list", option, folder).out
    pairs = [("shell",), ("serve",), ("mcp",), ("resources",), ("batch", "worker"), ("artifacts", "link")]
    for command in pairs:
        made = load_command(command[0])
        for name in command[1:]:
            made = made.commands[name]
        assert [param.opts for param in made.params if "--out" in param.opts] == [["--out", "--store"]], command


CSV = "name,value\nlonger than ten,2"


@pytest.mark.requirement("R2-6.1b")
def test_routing_settings_come_from_options_and_file(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    call = ("call", workbench.ws_url, "data.json", "-p", f"csv={CSV}", "--json")

    def fields(*options: str) -> list[str]:
        ran = abp(*call, *options)
        assert ran.status == 0, ran.err
        return [one["field"] for one in ran.document["artifacts"]]

    assert fields() == [""]
    assert len(fields("--routing", "max_inline_chars=10")) == 2
    assert len(fields("--routing", "max_inline_size=10", "--preset", "tableau")) == 2  # as the document calls it
    Path("abp.toml").write_text("[routing]\nmax_inline_chars = 10\n")
    assert len(fields()) == 2
    assert len(fields("--routing", "agent.max_bytes=2000")) == 2  # what the file says besides stays
    assert fields("--routing", "max_inline_chars=none") == [""]


@each_row(
    ("option", "said"),
    [
        ("max_inline_char=10", "--routing.max_inline_char: unknown; did you mean max_inline_chars?"),
        ("max_inline_chars", "--routing 'max_inline_chars' is not of the form KEY=VALUE"),
        ("max_inline_chars=soon", "--routing.max_inline_chars: Input should be a valid integer"),
        ("agent=3", "--routing.agent"),
        ("servers.a.max_texts=3", "--routing.servers: unknown"),
        ("preset=b", "--routing.preset: no preset is called 'b'"),
    ],
)
def test_unknown_setting_is_rejected(abp: CommandLine, option: str, said: str) -> None:
    ran = abp("call", "http://127.0.0.1:9/", "x", "--routing", option)
    assert ran.status == 2 and said in ran.err


@pytest.mark.parametrize(
    ("command", "variable", "meant"),
    [
        ("mcp", "ABP_MCP_ALLOWED_HOST", "ABP_MCP_ALLOWED_HOSTS"),
        ("mcp", "abp_mcp_rots", "ABP_MCP_ROOTS"),
        ("serve", "ABP_SERVE_TENANT", "ABP_SERVE_TENANTS"),
    ],
)
def test_server_command_rejects_unknown_variable(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, variable: str, meant: str
) -> None:
    if command == "mcp":
        pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")
    monkeypatch.setenv(variable, "x")
    ran = abp(command, "--config", "missing.toml") if command == "serve" else abp(command)
    assert ran.status == 2 and f"{variable}: nothing reads this variable; did you mean {meant}?" in ran.err


def test_kubernetes_service_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    from transports.surfaces.web._access import Options

    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8000_TCP", "PORT_8000_TCP_ADDR"):
        monkeypatch.setenv(f"ABP_SERVE_{name}", "10.0.0.1")
    assert Options.load().token is None


def test_unknown_variable_is_noted_once_by_other_commands(abp: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "abp: ABP_CALL_TIMEOT: nothing reads this variable; did you mean ABP_CALL_TIMEOUT?"
    (empty,) = abp("artifacts", "list").err.splitlines()
    # those of servers concern the servers alone, and limits of the retention are known
    for name, value in (("ABP_CALL_TIMEOT", "5"), ("ABP_MCP_ALLOWED_HOST", "x"), ("ABP_RETENTION_TTL_SECONDS", "9")):
        monkeypatch.setenv(name, value)
    assert abp("artifacts", "list").err.splitlines() == [note, empty]
    assert abp("artifacts", "list", "-q").err == ""
