"""Names, titles and descriptions of a hostile app: no surface passes on what a terminal or a reader would obey."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult, LoggingMessageNotificationParams

from tests.support.mcp_clients import URL, Serve, called, era, serve, words
from tests.support.web_client import running
from transports import CapabilityError, MemoryTransport, Session, connect
from transports.artifacts import open_store
from transports.protocol._declarations import AppInfo, Capability, Resource
from transports.protocol._plain_text import plain_text
from transports.protocol.messages import Message
from transports.surfaces.cli import main
from transports.surfaces.cli._calls import print_capabilities, print_capability
from transports.surfaces.cli._output import (
    _print_value,
    print_event,
    print_json,
    print_rows,
    report_error,
    start_output,
)
from transports.surfaces.cli._running import _PlainFormatter
from transports.sync import open_store as open_blocking
from transports.testing import Call

__all__ = ["era", "serve"]

#: ANSI, C1, direction, zero width, tags, and line breaks of all kinds.
EVIL = "\x1b]0;pwned\x07\x9b31m\u202eevil\u2066\u200b\u200d\ufeff\U000e0041\r\nabp: saved\u2028\x85line"
_FORBIDDEN = set("\x1b\x07\x9b\u202e\u2066\u200b\u200d\ufeff\U000e0041\r\u2028\x85")
NAME = f"do{EVIL}"
_PROPERTIES = {"title": {"type": "string", "title": EVIL, "description": EVIL}}


async def do(params: Mapping[str, object], call: Call) -> object:
    await call.progress(progress=1, total=2, stage=EVIL)
    await call.notify(EVIL, EVIL)
    if "fail" in params:
        raise CapabilityError(EVIL, code="EVIL", alternatives=[EVIL])
    question = {"title": EVIL, "message": EVIL, "schema": {"type": "object", "properties": _PROPERTIES}}
    answer = await call.elicit("elicitation/input", question)
    return {"answered": answer["success"]}


class Hostile(MemoryTransport):
    """An app whose words are all :data:`EVIL`."""

    words: ClassVar[dict[str, Any]] = {
        "app": {"id": EVIL, "name": EVIL * 100, "version": EVIL},
        "warnings": [EVIL],
        "capabilities": [
            {
                "name": NAME,
                "title": EVIL,
                "description": EVIL * 9,
                "inputSchema": {"type": "object", "properties": _PROPERTIES},
            },
            {"name": "values", "inputSchema": {"type": "object", "properties": {"a": {"enum": [EVIL]}}}},
            {"name": "n" * 5000},
        ],
    }

    def __init__(self, handlers: Mapping[str, Any] | None = None) -> None:
        super().__init__(handlers or {NAME: do})

    async def request(self, message: Message, *, timeout: float) -> Message:
        reply = await super().request(message, timeout=timeout)
        if message.type == "initialize":
            assert isinstance(reply.payload, dict)
            return Message(reply.type, {**reply.payload, **self.words}, id=reply.id)
        return reply


def _strings(node: object) -> Iterator[str]:
    match node:
        case str():
            yield node
        case Mapping():
            for key, value in node.items():
                yield from _strings(key)
                yield from _strings(value)
        case list() | tuple():
            for item in node:
                yield from _strings(item)


def _check(*nodes: object) -> None:
    """No text has a character that is obeyed or hidden."""
    for node in nodes:
        found = [ascii(text[:200]) for text in _strings(node) if _FORBIDDEN & set(text)]
        assert not found, found


def _connect(target: str, **options: Any) -> Session:
    return connect("memory:", transport=Hostile(), **options)


async def test_mcp_clients_get_plain_text(serve: Serve) -> None:
    heard: list[object] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        heard.append(params.model_dump())

    async def on_question(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.model_dump(by_alias=True))
        return ElicitResult(action="accept", content={"title": "a"})

    hearing = {"logging_callback": on_log, "elicitation_callback": on_question}
    async with serve(_connect, connected=False, **hearing) as client:
        connected = await client.call_tool("abp_connect", {"url": URL})
        tools = {tool.title: tool for tool in (await client.list_tools()).tools if tool.title}
        own = next(tool for title, tool in tools.items() if title.startswith("do"))
        assert all(len(title) <= 200 and "\n" not in title for title in tools)
        assert own.description and "\n" not in own.description and len(own.description) <= 1000
        assert own.input_schema["properties"]["title"]["type"] == "string"  # it is kept, with other words
        assert "a" not in tools["values"].input_schema["properties"]  # its values have no other words
        done = await client.call_tool(own.name, {}, progress_callback=on_progress)
        assert done.structured_content["data"] == {"answered": True}
        failed = await client.call_tool(own.name, {"fail": 1})
        status = await client.call_tool("abp_status", {})
        about = await client.call_tool("abp_status", {"capability": NAME})
        unknown = await client.call_tool("abp_call", {"capability": "unknown"})
        artifacts = await called(client, "abp_artifacts")
        listed = [one.model_dump(by_alias=True) for one in (await client.list_resources()).resources]
        assert listed and artifacts["total"]
        results = [answer.model_dump(by_alias=True) for answer in (connected, done, failed, status, about, unknown)]
        _check([tool.model_dump(by_alias=True) for tool in tools.values()], results, artifacts, listed, heard)
        assert {type(one) for one in heard} == {str, dict} and len(heard) >= 3
        for answer in (connected, status):
            assert not [line for line in words(answer).splitlines() if line.startswith("abp: saved")]
        for cursor in ("9" * 5000, "-1", "x"):
            with pytest.raises(MCPError, match="cursor"):
                await client.list_tools(cursor=cursor)
            with pytest.raises(MCPError, match="cursor"):
                await client.list_resources(cursor=cursor)


async def test_gallery_lists_plain_text(tmp_path: Path) -> None:
    async with running(open_store(tmp_path), Hostile) as web:
        await web.post("/apps", {"url": "ws://app.test/"})
        (app,) = (await web.get("/apps")).json["apps"]
        _check(app["name"], app["version"], [one["description"] for one in app["capabilities"]])
        assert app["capabilities"][0]["name"] == NAME  # by which it is called


class Terminal(io.TextIOWrapper):
    """A terminal that keeps what it is written."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def written(self) -> bytes:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@contextlib.contextmanager
def at_terminal(encoding: str = "utf-8") -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "dumb")  # colours are ours
        patch.setattr("sys.stdout", terminal := Terminal(encoding))
        start_output()
        yield terminal


#: As :data:`EVIL`, with what JSON need not escape: DEL, marks of direction, joiners, fillers, and words that need some.
EVERY = EVIL + "".join(map(chr, [*range(0x20), *range(0x7F, 0x600), *range(0x2000, 0x2070), 0x3164, 0xFEFF, 0x1D173]))
FAMILY = "\U0001f468\u200d\U0001f469 \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


def _check_bytes(data: bytes, *, allowed: str = "") -> str:
    text = data.decode()
    assert plain_text(text.removesuffix("\n")) == text.removesuffix("\n"), ascii(text)[:500]
    assert not (_FORBIDDEN - set(allowed)) & set(text), ascii(text)[:500]
    return text


DOCUMENT = {"data": {EVERY: [EVERY, FAMILY, 1.5, None]}, "artifacts": [{"filename": EVIL, "path": f"/tmp/{EVIL}"}]}


@pytest.mark.parametrize(
    ("write", "document"),
    [
        (print_json, DOCUMENT),
        (print_event, DOCUMENT),
        (print_json, {"path": f"\udcff{EVIL}"}),  # a path that is no text
        (_print_value, DOCUMENT),
    ],
)
def test_terminal_json_is_plain_and_parses_equal(
    write: Callable[[Mapping[str, object]], None], document: dict[str, object]
) -> None:
    with at_terminal() as terminal:
        write(document)
    text = _check_bytes(terminal.written, allowed="\u200d")
    assert json.loads(text) == document
    assert write is _print_value or text.count("\n") == 1
    assert document is not DOCUMENT or FAMILY in text  # what needs its joiners keeps them


def test_text_file_is_sanitized_on_terminal_and_raw_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = EVERY.encode() * 300  # several pieces
    with open_blocking(tmp_path) as store:
        ref = store.put_bytes(data, mime_type="text/plain", filename="evil.txt")
    monkeypatch.setenv("ABP_OUTPUT_DIR", str(tmp_path))
    assert main(["artifacts", "get", ref.id]) == 0 and capfdbinary.readouterr().out == data
    with at_terminal() as terminal:
        assert main(["artifacts", "get", ref.id]) == 0
    assert _check_bytes(terminal.written).count("pwned") == 300
    with at_terminal("ascii") as terminal:
        assert main(["artifacts", "get", ref.id]) == 0
    assert terminal.written.count(b"pwned") == 300


def test_terminal_output_is_sanitized(capsys: pytest.CaptureFixture[str]) -> None:
    words = {"name": NAME, "description": EVIL, "inputSchema": {"properties": {EVIL: {"description": EVIL}}}}
    capability = Capability.model_validate(words)
    print_capabilities(AppInfo(id=EVIL, name=EVIL, version=EVIL), [capability])
    resource = Resource(uri=EVIL, name=EVIL, mime_type=EVIL)
    print_capability(capability)
    print_rows([(resource.uri, resource.mime_type or "", resource.name)])
    report_error(CapabilityError(EVIL, code=EVIL, alternatives=[EVIL]), as_json=False)
    record = logging.LogRecord("transports", logging.WARNING, "", 0, "%s", (EVIL,), None)
    print(_PlainFormatter("abp: %(message)s").format(record))
    out, err = capsys.readouterr()
    _check(out, err)
    assert len(out.splitlines()) == 2 + 7 + 1 + 1 and len(err.splitlines()) == 1
