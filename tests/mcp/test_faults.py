"""An MCP server that breaks the rules: typed errors in time, the session lives, nothing is stored half."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from tests.support.eventually import eventually
from tests.support.mcp_servers import FOLDER, configured, target
from tests.support.processor import bytes_held_after
from tests.surfaces.proxy.test_stdio import alive
from transports import ABPError, CallTimeout, CapabilityError, Disconnected, Notification, ProtocolError, connect
from transports.errors import BadEncoding, ConnectFailed, TooLarge, UsageError
from transports.mcp import _stdio as stdio, _streams as streams, _wire as wire
from transports.protocol.binary import BinaryData
from transports.routing import Result


def words(result: Result) -> str:
    data: Any = result.data
    return str(data["content"][0]["text"])


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("index.")}


def descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


FAULTS: list[tuple[str, type[ABPError], str]] = [
    ("half_json", ProtocolError, "cannot be read"),
    ("bad_blob", BadEncoding, "not strictly valid base64"),
    ("never", CallTimeout, "no answer within"),
    ("no_result", ProtocolError, "cannot be read"),
    ("wrong_shape", ProtocolError, "content"),
    ("deep", ProtocolError, "nested deeper than 64 levels"),
    ("dies", Disconnected, "ended with status 3; it said: Traceback: out of cheese"),
    ("killed", Disconnected, "was ended by SIGKILL"),
    ("killed_midway", Disconnected, "was ended by SIGKILL"),
]


async def test_bad_answer_raises_typed_error_and_next_call_works(tmp_path: Path) -> None:
    async with connect(target("rude"), store=tmp_path) as app:
        for tool, error, says in FAULTS:
            before = files(tmp_path)
            with pytest.raises(error, match=says):
                await app.call(tool, timeout=0.3 if tool == "never" else 60)
            assert files(tmp_path) == before, tool
            with pytest.raises(CapabilityError, match="the app has bad_blob, deep") as unknown:
                await app.call("zzz-there-is-none")
            assert unknown.value.code == "UNKNOWN_CAPABILITY"
            assert words(await app.call("fine", idempotent=True)) == "fine", tool


async def test_a_message_over_a_lowered_limit_fails_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABP_MAX_MESSAGE_BYTES", "2000000")
    async with connect(target("rude"), store=tmp_path) as app:
        for tool in ("huge_text", "huge_line"):
            with pytest.raises(TooLarge, match="over the limit of 2,000,000 bytes"):
                await app.call(tool, timeout=30)
            assert words(await app.call("fine")) == "fine"


@pytest.mark.slow
async def test_large_messages_are_not_kept_until_the_next_ones(tmp_path: Path) -> None:
    async with connect(target("large"), store=tmp_path) as app:
        answer = {"content": [{"type": "image", "mimeType": "image/png", "data": f"@base64:{1 << 21}"}]}
        assert await bytes_held_after(app, "give", {"result": answer}) < 1 << 20
        assert await bytes_held_after(app, "take", {"text": "x" * (2 << 20)}) < 1 << 20


async def test_failing_reader_or_writer_fails_only_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("a fault of ours")

    async with connect(target("rude"), store=tmp_path, timeout=30) as app:
        monkeypatch.setattr(streams, "encode_message", fail)
        with pytest.raises(ProtocolError, match="cannot be sent"):
            await app.call("fine")
        assert words(await app.call("fine")) == "fine"
        monkeypatch.setattr(wire.MessageReader, "parse", fail)
        with pytest.raises(Disconnected):
            await app.call("fine")
        assert words(await app.call("fine")) == "fine"


async def test_garbage_between_messages_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with connect(target("rude"), store=tmp_path) as app:
        with caplog.at_level(logging.WARNING, "transports.mcp"):
            assert words(await app.call("garbage")) == "after the garbage"
            assert words(await app.call("twice")) == "first"
            assert words(await app.call("fine")) == "fine"
    assert sum("left out a line" in record.message for record in caplog.records) == 1


@pytest.mark.load
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
async def test_notification_flood_does_not_delay_answers(tmp_path: Path, count: int) -> None:
    told: list[Notification] = []
    async with connect(target("rude"), store=tmp_path, on_notification=told.append) as app:
        assert words(await app.call("floods", {"count": count}, timeout=30)) == "done"
        async with asyncio.timeout(20):
            while len(told) < count:
                await asyncio.sleep(0.02)
    assert [one.data["data"] for one in told if isinstance(one.data, dict)] == list(range(count))
    assert told[0].event == "notifications/message"


async def test_hostile_schema_does_not_break_or_stall_call(tmp_path: Path) -> None:
    """It is checked within bounds or not at all, and never fetched from anywhere."""
    async with connect(target("rude"), store=tmp_path) as app:
        for tool in ("doubling_schema", "remote_schema"):
            result = await app.call(tool, timeout=10)
            assert words(result) == "fine" and any("not checked" in warning for warning in result.warnings), tool
        assert words(await app.call("deep_schema", timeout=10)) == "fine"
        assert app.capabilities["deep_schema"].input_schema == {"type": "object"}  # the SDK could not take it
        assert words(await app.call("regex_schema", {"x": "a" * 30}, timeout=10)) == "fine"
        with pytest.raises(UsageError):
            await app.call("regex_schema", {"x": "a" * 5000 + "!"})


def python(script: str, *arguments: str) -> str:
    """The target of a server that is this script."""
    return f"mcp+stdio:{shlex.join([sys.executable, '-c', script, *arguments])}"


DATABASE = "--url=postgresql://user:pa55-word@db.example/sales"


@pytest.mark.load
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"{target('rude')} mute", "did not answer within 1 s"),
        ("mcp+stdio:no-such-command-here --token secret-token", "cannot be started"),
        ("mcp+stdio:false", "ended with status 1"),
        ("mcp+stdio:cat", r"cat cannot be connected: it refuses the handshake \(.*\); is it an MCP server\?"),
        ("mcp+http://127.0.0.1:9/mcp", "cannot be connected: .*; start the server or correct the address"),
        (python("print('Error: no key', end='')"), "ended with status 0; it said: Error: no key"),
        (
            python("import sys; sys.exit(f'cannot open {sys.argv[1]}: wrong password pa55-word')", DATABASE),
            "cannot open --url=postgresql://user:…@db.example/sales: wrong password …",
        ),
    ],
    ids=["mute", "no command", "status", "refusal", "no listener", "error on stdout", "password in an address"],
)
async def test_failed_server_connect_raises_and_leaves_no_process(
    tmp_path: Path, command: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "GRACE", 0.3)
    before = descendants()
    with pytest.raises(ConnectFailed, match=says) as failed:
        await connect(command, store=tmp_path, timeout=1 if "1 s" in says else 30)
    assert "secret-token" not in str(failed.value) and "pa55-word" not in str(failed.value)
    assert descendants() <= before


async def test_server_failing_to_list_tools_is_still_connected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(f"{target('rude')} unlisted", store=tmp_path) as app:
        assert (app.info.name, list(app.capabilities)) == ("rude", [])
        assert words(await app.call("fine")) == "fine"
    assert any("could not list its tools: no" in record.message for record in caplog.records)


@pytest.mark.load
async def test_a_server_that_ignores_shutdown_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ignores its stdin's end and SIGTERM, and a child of it holds its pipes."""
    monkeypatch.setattr(stdio, "GRACE", 0.3)
    before, began = descendants(), time.monotonic()
    async with connect(f"{target('rude')} deaf", store=tmp_path) as app:
        assert words(await app.call("fine")) == "fine"
        began = time.monotonic()
        assert len(descendants() - before) == 3  # with the guard
    assert time.monotonic() - began < 10
    assert descendants() <= before


_CLIENT = """
import asyncio, sys
from transports import connect
async def main():
    async with connect(sys.argv[1], store="memory:"):
        print("connected", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.slow
async def test_server_that_ignores_shutdown_ends_after_its_killed_client() -> None:
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CLIENT, f"{target('rude')} deaf"), stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    assert await client.stdout.readline() == b"connected\n"
    started = [psutil.Process(pid) for pid in descendants()]
    servers = [process for process in started if "rude.py" in str(process.cmdline())]
    client.kill()
    await client.wait()
    assert servers
    await eventually(lambda: not alive(servers), within=20)


async def test_close_ends_server_still_terminating_after_failed_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "GRACE", 0.3)
    before = descendants()
    async with connect(f"{target('rude')} dying {tmp_path}", store="memory:") as app:
        assert app.info.name == "rude"
        (first,) = [pid for pid in descendants() - before if "rude.py" in str(psutil.Process(pid).cmdline())]
        psutil.Process(first).kill()
        while not (tmp_path / "terminated").exists():  # by the second one, which does not end of that
            await asyncio.sleep(0.01)
    assert descendants() <= before


async def test_reason_why_server_does_not_start_again_is_said(tmp_path: Path) -> None:
    async with connect(f"{target('rude')} once {tmp_path}", store="memory:") as app:
        with pytest.raises(Disconnected, match="ended with status 3"):
            await app.call("dies")
        with pytest.raises(Disconnected, match=r"not back within 2 s: .* it said: the database is locked"):
            await app.call("fine", timeout=2)


async def test_server_inherits_proxies_and_certificates_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"https_proxy": "http://ann:pa55word@127.0.0.1:9", "NODE_EXTRA_CA_CERTS": "/ca.pem", "OWN_KEY": "k3y"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    script = f"import os, sys; sys.exit(str([os.environ.get(name) for name in {list(values)}]))"
    with pytest.raises(ConnectFailed, match=r"it said: \['…', '/ca.pem', None\]"):
        await connect(python(script), store="memory:")

    entry = {"command": sys.executable, "args": ["-c", script], "env": {"NODE_EXTRA_CA_CERTS": "/own.pem"}}
    with pytest.raises(ConnectFailed, match=r"it said: \['…', '…', None\]"):
        await connect(configured(tmp_path, {"own": entry}), store="memory:")


async def test_last_words_of_servers_that_end_together_are_shown() -> None:
    async def connect_once() -> None:
        with pytest.raises(ConnectFailed, match="it said: out of cheese"):
            await connect(python("import sys; sys.exit('out of cheese')"), store="memory:")

    await asyncio.gather(*(connect_once() for _ in range(5)))


async def test_errors_do_not_show_server_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDE_KEY", "sk-abcdef123456")
    script = str(FOLDER / "rude.py")
    entry = {"command": "python3", "args": [script], "env": {"RUDE_API_KEY": "${RUDE_KEY}"}}
    async with connect(configured(tmp_path, {"rude": entry}), store=tmp_path / "out") as app:
        with pytest.raises(Disconnected, match="rude ended with status 4; it said: the key is …") as failed:
            await app.call("secret")
        assert "sk-abcdef" not in str(failed.value.as_dict())


# --- lines, read without a server -------------------------------------------------------------------------------------

DEEP = "[" * 600 + "]" * 600
RUN = '{"type": "image", "mimeType": "image/png", "data": "' + "A" * 200_000 + '"}'


@pytest.mark.fault(21)
async def test_long_base64_with_deep_nesting_is_parsed_or_fails_request() -> None:
    line = f'{{"jsonrpc": "2.0", "id": 7, "result": {{"content": [{RUN}], "more": {DEEP}}}}}'.encode()
    read = await wire.MessageReader(1_000_000).parse(line)
    assert read is not None and isinstance(read.message, JSONRPCError | JSONRPCResponse)
    assert read.message.id == 7


def run_of(data: bytes) -> wire.Base64Run:
    return wire.Base64Run.of(memoryview(data))


def test_deeply_nested_base64_run_becomes_content() -> None:
    block: dict[str, Any] = {"type": "image", "data": run_of(b"A" * 8)}
    tree: object = block
    for _ in range(5000):
        tree = [tree]
    wire.with_content(tree)
    assert isinstance(block["data"], BinaryData)


async def test_line_parse_failure_becomes_error_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(wire, "parse_message", fail)
    read = await wire.MessageReader(1000).parse(b'{"jsonrpc": "2.0", "id": 7, "result": {}}')
    assert read is not None and isinstance(read.message, JSONRPCError)
    assert read.message.id == 7
