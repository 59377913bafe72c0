"""Messages of a server as the SDK can take them: it refuses a whole list for one tool that breaks the protocol, and
looks at every value of a result in the event loop.

A tool is repaired or left out. A result of many values is put aside: the SDK gets an empty one in its place, with a
mark by which :meth:`Aside.take` finds the whole again."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias

from mcp.client import Transport
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, Tool
from pydantic import ValidationError

from ...protocol.strict_json import is_larger

__all__ = ["MANY", "Aside", "Streams", "repair_tools"]

logger = logging.getLogger("transports.mcp")

#: Values of a result from which on it is put aside, and looked at in threads.
MANY = 3000
#: Values of a question or a notification, which the SDK looks at in the event loop; larger ones are left out.
_MAX_ASKED = 20_000
#: Tools of a list that the SDK gets, since it makes headers of their arguments.
_MAX_HEADED = 200
_MARK = "abp-transports/aside"
#: Levels of nesting: pydantic can write 255, and a schema stands below other levels.
_MAX_DEPTH = 200

Streams: TypeAlias = "AbstractAsyncContextManager[tuple[Any, Any]]"


class Aside:
    """The results of one connection that are put aside until they are asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    def put(self, result: dict[str, Any]) -> dict[str, Any]:
        """Keep a result, and return what stands for it."""
        mark = secrets.token_hex(16)  # not to be guessed, so no server can write one itself
        self._kept[mark] = result
        return {"_meta": {_MARK: mark}}

    def take(self, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result that ``result`` stands for, once; ``None`` if it stands for itself."""
        meta = result.get("_meta")
        mark = meta.get(_MARK) if isinstance(meta, Mapping) else None
        return self._kept.pop(mark, None) if isinstance(mark, str) else None


@asynccontextmanager
async def _repair_tools(streams: Streams, aside: Aside) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (reading, writing):
        yield _RepairedStream(reading, aside), writing


def repair_tools(streams: Streams, aside: Aside) -> Transport:
    """Wrap the streams of a server so that every list of tools is one that the SDK accepts, and every large result is
    put ``aside``.

    A schema without its type gets one; a schema that is nested too deeply is dropped, and so is a tool that is still
    invalid then. Each drop is logged as a warning. Of a list that is put aside the tools are
    :class:`~mcp_types.Tool`.
    """
    return _repair_tools(streams, aside)


class _RepairedStream:
    """A stream of incoming messages, each repaired."""

    def __init__(self, stream: Any, aside: Aside) -> None:
        self._stream = stream
        self._aside = aside

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while (message := await self._repaired(await self._stream.receive())) is None:
            pass
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while (message := await self._repaired(await anext(self._stream))) is None:
            pass
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return bool(await self._stream.__aexit__(exc_type, exc, tb))

    async def _repaired(self, message: SessionMessage | Exception) -> SessionMessage | Exception | None:
        """Return what the SDK gets of a message; ``None`` for one that is left out."""
        if not isinstance(message, SessionMessage) or isinstance(message.message, JSONRPCError):
            return message
        if not isinstance(message.message, JSONRPCResponse):
            if not is_larger(message.message.params, _MAX_ASKED):
                return message
            logger.warning("left out %.80r of the server: it has very many values", message.message.method)
            return None
        result = message.message.result
        whole = self._aside.take(result) or result
        tools = whole.get("tools")  # only `tools/list` has a list of that name at the top
        if not is_larger(whole, MANY):
            if isinstance(tools, list):
                whole["tools"] = [plain for plain, _ in _usable(tools)]
            message.message.result = whole
            return message
        shown: dict[str, Any] = {key: _empty(value) for key, value in whole.items() if key != "_meta"}
        if isinstance(tools, list):
            whole["tools"], shown["tools"] = await asyncio.to_thread(_usable_and_headed, tools)
        message.message.result = {**shown, **self._aside.put(whole)}
        return message


def _empty(value: object) -> object:
    return type(value)() if isinstance(value, dict | list) else value


def _usable(tools: list[object]) -> list[tuple[Mapping[str, Any], Tool]]:
    return [good for tool in tools if (good := _tool(tool)) is not None]


def _usable_and_headed(tools: list[object]) -> tuple[list[Tool], list[Mapping[str, Any]]]:
    """Return the tools that can be used, and those with arguments that become headers, for the SDK."""
    usable: list[Tool] = []
    headed: list[Mapping[str, Any]] = []
    for plain, tool in _usable(tools):
        if find_invalid_x_mcp_header(tool.input_schema) is None:  # else clients must not use it
            usable.append(tool)
            if x_mcp_header_map(tool.input_schema) and not is_larger(tool.input_schema, MANY):
                headed.append(plain)
    return usable, headed[:_MAX_HEADED]


def _tool(tool: object) -> tuple[Mapping[str, Any], Tool] | None:
    if not isinstance(tool, dict):
        return None
    good = {**tool, "inputSchema": {**_schema(tool, "inputSchema"), "type": "object"}}
    output = _schema(tool, "outputSchema")
    if output.get("type") == "object":
        good["outputSchema"] = output
    else:
        good.pop("outputSchema", None)
    try:
        return good, Tool.model_validate(good, by_name=False)
    except ValidationError as error:
        logger.warning("left out a tool that is not what MCP says: %.200s", error.errors()[0]["msg"])
        return None


def _schema(tool: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a tool's schema, or an empty one if it is nested more deeply than the SDK can handle."""
    schema = tool.get(key)
    if not isinstance(schema, dict):
        return {}
    level: list[object] = [schema]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return schema
    logger.warning(
        "left out %s of the tool %.80r: it is nested deeper than %d levels", key, tool.get("name"), _MAX_DEPTH
    )
    return {}
