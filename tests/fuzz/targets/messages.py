"""What an app or a server says: envelopes, replies of pages, capabilities, answers, lines of MCP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mcp_types import JSONRPCRequest, JSONRPCResponse, ListToolsResult, jsonrpc_message_adapter
from pydantic import ValidationError

from transports.errors import ABPError, CapabilityError
from transports.mcp import _streams
from transports.mcp._stdio import LineSplitter
from transports.mcp._wire import MessageReader, to_answer, to_capability, with_content
from transports.playwright._received import Held, parse_event, parse_json, parse_reply
from transports.protocol._capabilities import Capabilities, deprecation_warnings, with_suggestions
from transports.protocol._declarations import parse
from transports.protocol._elicitation import default_answer
from transports.protocol._find_content import MAX_DEPTH, field_of, find, replace_values
from transports.protocol._heuristics import Heuristics
from transports.protocol._payloads import Answer, ElicitationRequest, Initialized, Notification, Progress
from transports.protocol._strict_json import ValueCounter, decode_json, has_more_values, is_deeper
from transports.protocol.binary import BinaryData, Encoded
from transports.protocol.messages import Message
from transports.routing._guard import clamp, cut_texts, json_size
from transports.routing._layers import parse_text_blocks
from transports.routing._result import long_texts
from transports.websocket import envelope as base64_runs
from transports.websocket._transport import answered_requests
from transports.websocket.envelope import decode_envelope, encode_envelope

from ..cases import result_of

#: Looks at texts that fit into a case.
_EAGER = Heuristics(min_chars=16, require_magic_bytes=False)


@contextmanager
def _short_runs() -> Iterator[None]:
    """Take a text of 64 bytes for a run: one of 128 KiB is no input for a fuzzer."""
    longest, base64_runs._SHORTEST_RUN = base64_runs._SHORTEST_RUN, 64
    try:
        yield
    finally:
        base64_runs._SHORTEST_RUN = longest


def envelope(data: bytes) -> None:
    """A message over a WebSocket or from a frame, up to what a session reads in it."""
    answered_requests(data)
    with _short_runs():
        message = decode_envelope(data)
    assert message.id is None or isinstance(message.id, str)
    if message.type.endswith("-result"):
        _read_answer(message.payload)
    with suppress(ABPError):
        progress = parse(Progress, message.payload, "progress")
        assert progress.fraction is None or 0 <= progress.fraction <= 1
        assert len(progress.steps) == 2 and isinstance(progress.text, str)
    with suppress(ABPError):
        default_answer(parse(ElicitationRequest, message.payload, "a question"))
    with suppress(ABPError):
        parse(Notification, message.payload, "a notification")
    with suppress(ABPError):
        _read_capabilities(parse(Initialized, message.payload, "the answer").capabilities)


def reply(data: bytes) -> None:
    """What the agent in a page returns and emits, as a page could forge it."""
    with suppress(ABPError):
        parse_event(data.decode("utf-8", "surrogateescape"))
    with suppress(ABPError):
        parse_json(data.decode("utf-8", "surrogateescape"), Held, "an answer")
    for kind in ("capabilities/call", "initialize"):
        with suppress(ABPError):
            _read_answer(parse_reply(Message(kind, {}, id="1"), data).payload)


def _read_answer(payload: object) -> None:
    answer = parse(Answer, payload, "the answer")
    with suppress(CapabilityError):
        answer.raise_for_error("export.pdf")
    _read_content(answer.data)


def _read_content(tree: object) -> None:
    found = find(tree, heuristics=_EAGER)
    for item in found:
        assert isinstance(field_of(item.path), str)
        if isinstance(item.binary, BinaryData) and isinstance(item.binary.content, bytes | Encoded):
            with suppress(ABPError):
                item.binary.read()
    replace_values(tree, dict.fromkeys(item.path for item in found))


def capabilities(data: bytes) -> None:
    """A list of capabilities, and a change of it."""
    _read_capabilities(decode_json(data))


def _read_capabilities(listed: object) -> None:
    known = Capabilities().merge(listed)
    assert all(isinstance(name, str) for name in known)
    for capability in known.values():
        deprecation_warnings(capability)
    with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "export.pfd", known)
    with_suggestions(CapabilityError("no", code="REQUIREMENT_NOT_MET"), next(iter(known), ""), known)
    changed = known.apply_change(listed).with_manifest(known.values())
    assert not changed.diff(changed).changed


def answer(data: bytes) -> None:
    """The data of an answer: files in it, text that is JSON, and the part that an agent reads."""
    tree: Any = decode_json(data)
    _read_content(tree)
    if isinstance(tree, dict):
        parse_text_blocks(tree, (), _EAGER)
    long_texts(tree, 20)
    for limit in (64, 300, 2000):
        assert json_size(clamp(tree, limit)) <= limit
    cut_texts(tree, 20)
    encode_envelope(Message("capabilities/call-result", tree))


def mcp(data: bytes) -> None:
    """Lines of a server over stdio, in two chunks."""
    lines = LineSplitter(2048)
    reader = MessageReader(4096)
    middle = len(data) // 2
    for chunk in (data[:middle], data[middle:], b"\n"):
        for line in lines.feed(chunk):
            with _short_runs():
                message = result_of(reader.parse(line))
            if message is not None:
                _read_mcp(message.message)


def _read_mcp(message: object) -> None:
    if isinstance(message, JSONRPCRequest):
        with_content(message.params)
    if not isinstance(message, JSONRPCResponse):
        return
    result = with_content(message.result)
    if not is_deeper(result, MAX_DEPTH):
        with suppress(ABPError):
            _read_answer(to_answer(result))
    try:
        tools = ListToolsResult.model_validate(message.result, by_name=False).tools
    except ValidationError:
        return
    _read_capabilities([to_capability(tool) for tool in tools])


def tools(data: bytes) -> None:
    """A server's list of tools: repaired as the SDK must take it, put aside as a large one is, over HTTP as JSON and as
    an event, and the number of its values however it is cut."""
    counter = ValueCounter()
    for piece in (data[: len(data) // 3], data[len(data) // 3 :]):
        counter.add(piece)
    assert counter.count == ValueCounter().add(data) and not has_more_values(data, counter.count)
    listed = decode_json(data)
    if not isinstance(listed, list):
        listed = [listed]
    usable, headed = _streams._sort_tools(listed)
    ListToolsResult.model_validate({"tools": headed}, by_name=False)
    _read_capabilities([to_capability(tool) for tool in usable])
    message = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[' + data + b'],"_meta":{"a":' + data + b"}}}"
    aside = _streams.WithheldResults()
    short = jsonrpc_message_adapter.validate_json(_streams._convert_event(None, aside, message), by_name=False)
    if isinstance(short, JSONRPCResponse):
        whole = aside.pop_original(short.result)
        assert whole is not None and isinstance(whole["tools"], list) and aside.pop_original(short.result) is None
        assert aside.pop_original(whole) is None
