"""The ``abp`` command as a process, without a browser: usage, settings, artifacts, signals."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Terminal
from tests.support.slow import slow_but
from transports import ArtifactRef, LocalStore, UsageError

ABP = [sys.executable, "-m", "transports.surfaces.cli"]


class Process(subprocess.Popen[bytes]):
    """As its base, but what still runs when a test has failed is killed, not waited for."""

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self.kill()
        super().__exit__(*error)


class Cli:
    """``abp`` with a temp folder and an output folder of its own, which are looked at after every run."""

    def __init__(self, folder: Path) -> None:
        self.temp = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))  # a short path: Chromium puts a socket into it
        self.out = folder / "out"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("ABP_")}
        if browser := os.environ.get("ABP_BROWSER"):
            self.env["ABP_BROWSER"] = browser
        self.env |= {"ABP_OUTPUT_DIR": str(self.out), "TMPDIR": str(self.temp)}

    def start(self, *args: object, **options: Any) -> Process:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        env = self.env | options.pop("env", {})
        return Process([*ABP, *map(str, args)], env=env, **{**pipes, **options})

    def files(self) -> list[str]:
        """All files in the output folder."""
        return sorted(str(path.relative_to(self.out)) for path in self.out.rglob("*") if not path.is_dir())

    def staged(self) -> list[Path]:
        return list(self.out.glob(".abp/staging/*"))

    def put(self, data: bytes, **described: Any) -> ArtifactRef:
        return asyncio.run(LocalStore(self.out).put_bytes(data, **described))


@pytest.fixture
def abp(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path)
    yield cli
    assert list(cli.temp.iterdir()) == [] and cli.staged() == [], "left behind"
    cli.temp.rmdir()


@pytest.fixture
def quick(abp: Cli, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> CommandLine:
    """The command in this process, with the same folders."""
    monkeypatch.setattr("tempfile.tempdir", None)
    return CommandLine({"ABP_OUTPUT_DIR": str(abp.out), "TMPDIR": str(abp.temp)}, monkeypatch, capfdbinary)


URL = "http://127.0.0.1:9/"  # nothing below gets as far as opening it


USAGE_ERRORS = [
    (("call", "nonsense", "export.pdf"), "'nonsense' is not a target", "such as http://127.0.0.1:8000/"),
    (("call", "http://127.0.0.1:99999/", "x"), "is not a target", "such as http://127.0.0.1:8000/"),
    (("call", "localhost:8000", "x"), "is not a target", "did you mean http://localhost:8000?"),
    (("call", "foo", "x"), "give the app's address, such as http://", "no app is called 'foo' in the settings"),
    (("capabilities", "foo"), "give the app's address", "no app is called 'foo' in the settings"),
    (("login", "foo"), "no app is called 'foo' in abp.toml", "add it: [apps.foo] with its url"),
    (("login", "localhost:8000"), "'localhost:8000' is not the name of an app", "`abp login` takes the name"),
    (("discover",), "missing argument 'URL'", "`abp discover --help`"),
    (("discover", "127.0.0.1:8000"), "is not the address of a page", "such as http://127.0.0.1:8000/"),
    (("call", URL), "missing argument 'CAPABILITY'", "`abp call [OPTIONS] TARGET CAPABILITY`"),
    (
        ("call", URL, "x", "--transport", "pigeon"),
        "unknown transport 'pigeon'",
        "ws:// addresses need no --transport",
    ),
    (("call", URL, "x", "--params", "{html: 1}"), "--params is not JSON", """--params '{"key": 1}'"""),
    (("call", URL, "x", "--params", "[1]"), "must be a JSON object such as '{\"key\": 1}'", "not an array"),
    (("call", URL, "x", "-p", "html"), "'html' is not of the form -p KEY=VALUE", "-p title=Report"),
    (("call", URL, "x", "-p", "=1"), "'=1' is not of the form -p KEY=VALUE", "-p title=Report"),
    (("call", URL, "x", "-p", "a..b=1"), "'a..b=1' is not of the form", "-p title=Report"),
    (("call", URL, "x", "-p", "a=1", "-p", "a.b=1"), "a.b: 'a' already has a value", "--params"),
    (("call", URL, "x", "-p", "a=1", "-p", "b=1", "-p", "a=2"), "'a' is given twice", "-p 'a=[1, 2]'"),
    (("call", URL, "x", "-p", "a.b=1", "-p", "a=2"), "'a' would replace 'a.b'", "give it once"),
    (("call", URL, "x", "--record", "/dev/null/x.jsonl"), "/dev/null/x.jsonl", "a folder that exists"),
    (("call", URL, "x", "--file", "image"), "'image' is not of the form --file KEY=PATH", "--file image=photo.png"),
    (("call", URL, "x", "--file", "image=/dev/null"), "/dev/null is not a regular file", "save its content"),
    (("call", URL, "x", "--cdp-url", URL, "--profile", "."), "--profile and --cdp-url", "are mutually exclusive"),
    (("capabilities",), "missing argument 'TARGET'", "`abp capabilities --help`"),
    (("fixture", "--port", "99999"), "'--port'", "65535"),
    (
        ("conformance", "ws://x.test/", "--adapter", "/no.js"),
        "--adapter cannot be combined with",
        "is not a top page",
    ),
    (("conformance", URL, "--adapter", "/no.js"), "the adapter '/no.js' cannot be read", "No such file"),
    (("serve", "--adapter", "/no.js"), "(no.js) is for one app, and 0 are given", "name just that app"),
    (("serve", "--app", "ws://x.test/", "--adapter", "/no.js"), "an adapter is for a page", "the page's origin"),
    (("artifacts", "get", "x"), "no such option: --json", "`abp artifacts get --help`"),
    (("artifacts", "show"), "missing argument 'ID'", "`abp artifacts show [OPTIONS] ID`"),
    (("bogus",), "no such command 'bogus'", "the commands are call, capabilities,"),
]


def test_usage_error_is_one_line_with_problem_and_fix(abp: Cli, quick: CommandLine) -> None:
    for args, problem, fix in USAGE_ERRORS:
        ran = quick(*args, "--json")
        assert ran.status == 2, args
        assert problem in ran.complaint and fix in ran.complaint.replace(problem, ""), args
        error = ran.document["error"]
        assert ran.document == {"success": False, "error": error, "cancelled": False}
        assert error["code"] == "INVALID_PARAMS" and error["retryable"] is False
        assert ran.complaint == f"abp: {error['message']} [INVALID_PARAMS]"
    assert not abp.out.exists()


def test_serve_passes_adapter_to_its_only_app(
    quick: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "own.js"
    script.write_text("abp.capability('x', {}, () => 1)")
    connected: list[object] = []

    @contextlib.asynccontextmanager
    async def serving(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        async def connect(target: str, options: object) -> None:
            connected.append((target, options))
            raise UsageError("enough")

        yield SimpleNamespace(apps=SimpleNamespace(connect=connect))

    monkeypatch.setattr("transports.surfaces.web._server.serve", serving)
    assert quick("serve", "--app", URL, "--adapter", script).status == 2
    assert connected == [(URL, {"adapter": script})]


def test_invalid_params_from_file_or_stdin_are_rejected(quick: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    for content in (b"\xff\xfe{\x00", b"not json", b"3"):
        file.write_bytes(content)
        for source in (f"@{file}", "-"):
            ran = quick("call", URL, "x", "--params", source, stdin=content)
            assert ran.status == 2 and f"--params {source}" in ran.complaint


def test_an_invalid_setting_is_named(quick: CommandLine) -> None:
    for name, value, fix in (
        ("ABP_CALL_TIMEOUT", "soon", "a valid number"),
        ("ABP_LOG_LEVEL", "chatty", "WARNING"),
        ("ABP_HEADLESS", "perhaps", "a valid boolean"),
        ("ABP_STORE", "ftp://x/y", "file:"),
    ):
        ran = quick("call", URL, "x", "--json", env={name: value})
        assert ran.status == 2 and fix in ran.complaint and (name in ran.complaint or value in ran.complaint)
        assert ran.document["success"] is False


def test_missing_browser_error_says_how_to_get_one(abp: Cli, quick: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # no browser is looked for where nothing listens
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        named = quick("call", url, "x", "--json", env={"ABP_BROWSER": "/nonexistent"})
        nowhere = {"ABP_BROWSER": "", "PATH": str(abp.temp), "PLAYWRIGHT_BROWSERS_PATH": str(abp.temp)}
        none = quick("call", url, "x", "--json", env=nowhere)
    assert named.status == 1 and named.document["error"]["code"] == "BROWSER_ERROR"
    assert "/nonexistent" in named.complaint and "correct ABP_BROWSER or unset it" in named.complaint
    assert none.status == 1 and none.document["error"]["code"] == "BROWSER_ERROR"
    assert "abp doctor --install" in none.complaint
    doctor = quick("doctor", env=nowhere)
    assert doctor.status == 1 and "abp doctor --install" in doctor.complaint and "python" in doctor.out
    assert [file for file in abp.files() if not file.startswith(".abp/locks/")] == []


def test_doctor_reports_unusable_folder(abp: Cli, quick: CommandLine) -> None:
    abp.out.write_text("in the way")
    ran = quick("doctor", env={"ABP_BROWSER": "/nonexistent"})
    assert ran.status == 1 and f"{abp.out} is not a folder" in ran.err and "[BROWSER_ERROR]" in ran.err


# --- artifacts --------------------------------------------------------------------------------------------------------

BYTES = bytes(range(256)) * 5000


def test_artifacts_are_listed_shown_fetched_and_removed(abp: Cli, quick: CommandLine, tmp_path: Path) -> None:
    assert quick("artifacts", "list", "--json").document == {"success": True, "artifacts": []}
    empty = quick("artifacts", "list")
    assert empty.status == 0 and empty.out == "" and "no artifacts in file://" in empty.complaint
    ref = abp.put(BYTES, filename="data.bin", meta={"capability": "file.generate"})
    other = abp.put(b"{}", filename="other.json")

    listed = quick("artifacts", "list", "--json").document["artifacts"]
    assert [item["id"] for item in listed] == [ref.id, other.id]
    assert listed[0].items() >= ref.as_dict().items() and listed[0]["source"]["capability"] == "file.generate"
    lines = quick("artifacts", "list").out.splitlines()
    assert len(lines) == 2 and ref.id in lines[0] and "1,280,000" in lines[0] and "data.bin" in lines[0]

    shown = quick("artifacts", "show", ref.id, "--json").document
    assert shown["artifact"]["sha256"] == hashlib.sha256(BYTES).hexdigest()
    assert shown == {"success": True, "artifact": listed[0]}
    text = quick("artifacts", "show", ref.id, "--out", abp.out, env={"ABP_OUTPUT_DIR": "/nonexistent"}).out
    assert ref.sha256 in text and str(ref.path) in text and "verified when stored" in text

    for given in ((), ("-",)):
        assert quick("artifacts", "get", ref.id, *given).out.encode(errors="surrogateescape") == BYTES
    target = tmp_path / "copy.bin"
    ran = quick("artifacts", "get", ref.id, target)
    assert ran.status == 0 and ran.out == "" and f"wrote {target}" in ran.complaint and target.read_bytes() == BYTES
    folder = tmp_path / "folder"
    folder.mkdir()
    assert quick("artifacts", "get", ref.id, folder).status == 0
    assert [path.name for path in folder.iterdir()] == ["data.bin"]

    assert quick("artifacts", "rm", ref.id).status == 0
    assert quick("artifacts", "list", "--json").document["artifacts"] == [listed[1]]
    assert not Path(str(ref.path)).exists()
    for args in (
        ("rm", ref.id, other.id),
        ("show", ref.id, "--json"),
        ("get", ref.id),
        ("get", ref.id, tmp_path / "x"),
    ):
        gone = quick("artifacts", *args)
        assert gone.status == 1 and f"'{ref.id}'" in gone.complaint and "[ARTIFACT_NOT_FOUND]" in gone.complaint
        assert abp.out.as_uri() in gone.complaint and "`abp artifacts list`" in gone.complaint
    assert not (tmp_path / "x").exists()
    assert quick("artifacts", "rm", other.id).status == 0
    assert quick("artifacts", "list", "--json").document["artifacts"] == []


def test_gc_removes_leftovers_and_old_artifacts(abp: Cli, quick: CommandLine) -> None:
    nothing = {"success": True, "dry_run": False, "removed": [], "size_bytes": 0}
    assert quick("artifacts", "gc", "--json").document == nothing
    ref = abp.put(BYTES, filename="data.bin")
    leftover = abp.out / ".abp/staging/999999999-0a"
    leftover.write_bytes(b"left")
    os.utime(leftover, (1_000_000_000,) * 2)
    stale = {"kind": "staged", "id": leftover.name, "size_bytes": 4, "reason": "orphan"}
    expected = {"success": True, "dry_run": True, "removed": [stale], "size_bytes": 4}
    assert quick("artifacts", "gc", "--dry-run", "--json").document == expected and leftover.exists()
    ran = quick("artifacts", "gc")
    assert ran.status == 0 and leftover.name in ran.out and "removed 1 file, 4 bytes" in ran.complaint
    assert not leftover.exists() and quick("artifacts", "gc", "--ttl", "7d", "--json").document == nothing
    assert quick("artifacts", "gc").complaint == "abp: removed 0 files, 0 bytes"
    ran = quick("artifacts", "gc", "--ttl", "0s", "--dry-run")
    assert ref.id in ran.out and "expired" in ran.out and "would remove 1 file, 1,280,000 bytes" in ran.complaint
    assert [one["id"] for one in quick("artifacts", "gc", "--ttl", 0, "--json").document["removed"]] == [ref.id]
    assert quick("artifacts", "list", "--json").document["artifacts"] == []
    for wrong in (-1, "a week"):
        ran = quick("artifacts", "gc", "--ttl", wrong)
        assert ran.status == 2 and "'--ttl'" in ran.complaint and "7d" in ran.complaint


def test_fsck_finds_damaged_artifacts(abp: Cli, quick: CommandLine) -> None:
    ref, good = abp.put(BYTES, filename="data.bin"), abp.put(b"good", filename="good.txt")
    whole = {"success": True, "artifacts": 2, "size_bytes": len(BYTES) + 4, "problems": []}
    assert quick("artifacts", "fsck", "--json").document == whole
    ran = quick("artifacts", "fsck")
    assert ran.status == 0 and ran.out == "" and "2 artifacts" in ran.complaint and "no damage" in ran.complaint
    Path(str(ref.path)).write_bytes(BYTES[:-1] + b"!")
    ran = quick("artifacts", "fsck", "--json")
    assert ran.status == 1 and "[CORRUPT]" in ran.complaint
    document = ran.document
    assert document["success"] is False and document["error"]["code"] == "CORRUPT" and document["artifacts"] == 2
    assert [(problem["kind"], problem["id"]) for problem in document["problems"]] == [("content", ref.id)]
    ran = quick("artifacts", "fsck")
    assert ran.status == 1 and ref.id in ran.out and good.id not in ran.out
    (abp.out / ".abp/meta" / f"{good.id}.json").write_text("{")
    assert "--repair" in quick("artifacts", "fsck").out
    assert "put into quarantine" in quick("artifacts", "fsck", "--repair").out
    assert good.id not in quick("artifacts", "fsck").out


def test_audit_log_is_configured_by_environment(abp: Cli, quick: CommandLine, tmp_path: Path) -> None:
    ref, log = abp.put(b"text", filename="a.txt"), tmp_path / "audit.jsonl"
    assert quick("artifacts", "get", ref.id, "-", env={"ABP_AUDIT_LOG": str(log)}).out == "text"
    assert quick("artifacts", "rm", ref.id, env={"ABP_AUDIT_LOG": str(log)}).status == 0
    assert [json.loads(line)["action"] for line in log.read_text().splitlines()] == ["read", "delete"]


def test_get_writes_to_pipes_and_symlinks_but_no_damaged_content_and_into_no_missing_folder(
    abp: Cli, quick: CommandLine, tmp_path: Path
) -> None:
    ref = abp.put(b"short", filename="data.bin")
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert quick("artifacts", "get", ref.id, pipe).status == 0
    assert os.read(reader, 100) == b"short" and pipe.is_fifo()
    os.close(reader)
    link.symlink_to(tmp_path / "real")
    assert quick("artifacts", "get", ref.id, link).status == 0 and link.is_symlink()
    assert (tmp_path / "real").read_bytes() == b"short"
    ran = quick("artifacts", "get", ref.id, tmp_path / "no" / "file")
    assert ran.status == 1 and f"the folder {tmp_path / 'no'} does not exist; make it first" in ran.complaint
    Path(str(ref.path)).write_bytes(b"shor!")
    ran = quick("artifacts", "get", ref.id, link)
    assert ran.status == 1 and ref.id in ran.complaint and "[CORRUPT]" in ran.complaint
    assert (tmp_path / "real").read_bytes() == b"short"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out", "pipe", "real"]


def test_binary_content_is_not_written_to_a_terminal(
    abp: Cli, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    binary = abp.put(BYTES, filename="data.bin")
    text = abp.put(b'{"a": 1}', filename="a.json", mime_type="application/json")
    run = CommandLine({"ABP_OUTPUT_DIR": str(abp.out)}, monkeypatch, capfdbinary)
    for ref, status, expected in ((binary, 2, "abp artifacts get"), (text, 0, '{"a": 1}')):
        ran = run.at_terminal("artifacts", "get", ref.id, script=lambda _: None, stdout=True)
        assert ran.status == status and ran.out == "" and expected in ran.err
        assert ran.err.startswith("abp: " if status else "{") and len(ran.err.splitlines()) == 1


# --- endings ----------------------------------------------------------------------------------------------------------


def reading(process: Process) -> Any:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(
    ("number", "status"),
    slow_but([(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], (signal.SIGINT, 130)),
)
def test_fixture_prints_urls_and_serves_until_signal(abp: Cli, number: int, status: int) -> None:
    with abp.start("fixture", "--json") as process:
        urls = json.loads(reading(process))
        assert urls["strict_url"] == urls["url"] + "strict" and urls["embed_url"] == urls["url"] + "embed"
        assert urls["ws_url"] == urls["url"].replace("http", "ws", 1) + "abp" and urls["other_origin"] != urls["url"]
        assert urls["url"].startswith("http://127.0.0.1:") and len(urls) == 5
        port = int(urls["url"].rstrip("/").rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (status, b"")  # no second document
    assert err == b""  # the signal is how it ends


@pytest.mark.slow
def test_fixture_prints_text_and_keeps_ignored_signals_ignored(abp: Cli) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        started = abp.start("fixture")
    finally:
        signal.signal(signal.SIGHUP, before)
    with started as process:
        assert b"http://127.0.0.1:" in reading(process) and b"/strict" in reading(process)
        assert b"/embed" in reading(process)
        assert re.fullmatch(rb"over a WebSocket: +ws://127.0.0.1:\d+/abp\n", reading(process))
        assert re.fullmatch(rb"on a second origin: +http://127.0.0.1:\d+/\n", reading(process))
        assert re.fullmatch(rb"with faults, for tests: +http://127.0.0.1:\d+/\?faults\n", reading(process))
        assert b"Ctrl-C" in reading(process)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.terminate()
        assert process.communicate(timeout=10)[0] == b""
    assert process.returncode == 143


def test_signal_interrupts_waiting_for_stdin(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def interrupt(terminal: Terminal) -> None:
        terminal.wait_for("Ctrl-D")
        signal.pthread_kill(main_thread, signal.SIGINT)

    run = CommandLine({}, monkeypatch, capfdbinary)
    ran = run.at_terminal("call", URL, "x", "--params", "-", "--json", script=interrupt)
    assert ran.status == 130 and "Traceback" not in ran.err
    assert ran.document["cancelled"] is True and ran.document["error"]["code"] == "CANCELLED"


@pytest.mark.slow
def test_signal_during_startup_prints_no_traceback(abp: Cli) -> None:
    # A coverage run starts before our first line, and its own start is not ours to guard.
    abp.env = {name: value for name, value in abp.env.items() if not name.startswith("COVERAGE_")}
    outcomes: list[int] = []
    while len(outcomes) < 6 or 130 not in outcomes:  # a start takes longer on a loaded machine
        assert len(outcomes) < 100, outcomes
        with abp.start("fixture") as process:
            time.sleep(0.06 + 0.04 * len(outcomes))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        # Until the handlers are set, and the commands are imported, a traceback is Python's own.
        assert not (b"Traceback" in err and b"_commands.py" in err), err.decode()
        outcomes.append(process.returncode)


def test_closed_stdout_pipe_ends_command_quietly(abp: Cli) -> None:
    ref = abp.put(BYTES)
    reader, writer = os.pipe()
    os.close(reader)
    with abp.start("artifacts", "get", ref.id, stdout=writer) as process:
        os.close(writer)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(os.name == "nt", reason="needs pipes that do not block: those of Windows always do")
def test_output_is_whole_on_nonblocking_pipe() -> None:
    """As Node.js leaves a pipe that it shares."""
    code = """
from transports.surfaces.cli._output import print_json, print_text, start_output
start_output()
print_text("a" * 500_000)
print_json({"b": "b" * 500_000})
"""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with (
        os.fdopen(reader, "rb") as output,
        subprocess.Popen([sys.executable, "-c", code], stdout=writer) as program,
    ):
        os.close(writer)
        time.sleep(0.5)
        data = output.read()
    assert program.returncode == 0
    assert (data.count(b"a"), data.count(b"b")) == (500_000, 500_001)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux: for its device /dev/full")
def test_full_stdout_device_is_reported(quick: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        ran = quick("artifacts", "list", "--json")
    assert ran.status == 1 and "No space left on device" in ran.complaint


def test_json_output_is_utf8_and_text_degrades_in_any_locale(
    abp: Cli, quick: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = abp.put(b"x", filename="grüße.txt")
    for args, shown in ((("show", ref.id, "--json"), "grüße.txt"), (("list",), "gr??e.txt")):
        stdout = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", io.TextIOWrapper(stdout, encoding="ascii", write_through=True))
            assert quick("artifacts", *args).status == 0
            assert shown in stdout.getvalue().decode()


def test_unexpected_error_is_printed_as_one_line(quick: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports.session._stores.open_store", None)
    ran = quick("artifacts", "list", "--json")
    assert ran.status == 1 and "TypeError" in ran.complaint and "please report it" in ran.complaint
    assert ran.document["error"]["code"] == "INTERNAL_ERROR"


def test_doctor_reports_all_facts_without_secrets(quick: CommandLine, tmp_path: Path) -> None:
    env = {"ABP_MCP_TOKEN": "hunter2", "ABP_LOG_LEVEL": "ERROR", "ABP_BROWSER": "/nonexistent"}
    ran = quick("doctor", "--json", env=env)
    facts = ran.document
    assert ran.status == 1 and [problem["code"] for problem in facts["problems"]] == ["BROWSER_ERROR"]
    assert "hunter2" not in str(facts) + ran.err
    assert {**env, "ABP_MCP_TOKEN": None}.items() <= facts["settings"].items()
    assert facts["store"]["url"].startswith("file:///") and facts["store"]["works"] and facts["store"]["keeps"]
    assert isinstance(facts["sandbox"], bool)
    assert all(facts["extras"][name]["version"] for name in ("cloud", "images", "mcp", "test"))
    assert facts["python"]["version"] == platform.python_version()
    text = quick("doctor", env=env).out
    labels = [line[:16].strip() for line in text.splitlines()]
    last = labels.index("video")  # what is optional comes last
    assert labels.index("store") < labels.index("sandbox") < last < labels.index("extras")
    assert set(labels[last + 2 :]) <= {"", "plug-ins"} and all(f"{name} (" in text for name in facts["extras"])
    assert "ABP_MCP_TOKEN (set)" in text and "ABP_LOG_LEVEL=ERROR" in text
    assert "(can be written, read and deleted)" in text
    none = quick("doctor", "--json", env={**env, "ABP_STORE": "none:"}).document["store"]
    assert none == {"url": "none:", "works": True, "keeps": False}
