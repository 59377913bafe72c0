"""Repairs lists of tools: the SDK refuses a whole list for one tool that breaks the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias

from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, Tool
from pydantic import ValidationError

from ...protocol.strict_json import is_larger

__all__ = ["Streams", "repair_tools"]

logger = logging.getLogger("transports.mcp")

#: Values in a list of tools that is repaired in a thread.
_MANY = 5000
#: Levels of nesting: pydantic can write 255, and a schema stands below other levels.
_MAX_DEPTH = 200

Streams: TypeAlias = "AbstractAsyncContextManager[tuple[Any, Any]]"


@asynccontextmanager
async def _repair_tools(streams: Streams) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (reading, writing):
        yield _RepairedStream(reading), writing


def repair_tools(streams: Streams) -> Transport:
    """Wrap the streams of a server so that every list of tools is one that the SDK accepts.

    A schema without its type gets one; a schema that is nested too deeply is dropped, and so is a tool that is still
    invalid then. Each drop is logged as a warning.
    """
    return _repair_tools(streams)


class _RepairedStream:
    """A stream of incoming messages, each repaired."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return await _repaired(await self._stream.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await _repaired(await anext(self._stream))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return bool(await self._stream.__aexit__(exc_type, exc, tb))


async def _repaired(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """Repair the tools of a response; only ``tools/list`` has a list of that name at the top."""
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
        result = message.message.result
        if isinstance(tools := result.get("tools"), list):
            apart = is_larger(tools, _MANY)
            result["tools"] = await asyncio.to_thread(_usable, tools) if apart else _usable(tools)
    return message


def _usable(tools: list[object]) -> list[Mapping[str, Any]]:
    return [good for tool in tools if (good := _tool(tool)) is not None]


def _tool(tool: object) -> Mapping[str, Any] | None:
    if not isinstance(tool, dict):
        return None
    good = {**tool, "inputSchema": {**_schema(tool, "inputSchema"), "type": "object"}}
    output = _schema(tool, "outputSchema")
    if output.get("type") == "object":
        good["outputSchema"] = output
    else:
        good.pop("outputSchema", None)
    try:
        Tool.model_validate(good, by_name=False)
    except ValidationError as error:
        logger.warning("left out a tool that is not what MCP says: %.200s", error.errors()[0]["msg"])
        return None
    return good


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
