"""Lists of tools with one that is not what MCP says: the SDK would refuse the whole list."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias

from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, Tool
from pydantic import ValidationError

__all__ = ["Streams", "mending"]

logger = logging.getLogger("transports.mcp")

#: What pydantic can still write is 255 levels, and a schema stands below others.
_DEEPEST = 200

Streams: TypeAlias = "AbstractAsyncContextManager[tuple[Any, Any]]"


@asynccontextmanager
async def _mending(streams: Streams) -> AsyncIterator[tuple[Any, Any]]:
    async with streams as (reading, writing):
        yield _Mended(reading), writing


def mending(streams: Streams) -> Transport:
    """The same streams, where a schema that lacks its type gets one, one that is nested too deeply is left out, and so
    is a tool that makes no sense."""
    return _mending(streams)


class _Mended:
    """A stream of messages that come in."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return _mended(await self._stream.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _mended(await anext(self._stream))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return bool(await self._stream.__aexit__(exc_type, exc, tb))


def _mended(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """Only ``tools/list`` answers with a list of that name at the top."""
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
        result = message.message.result
        if isinstance(tools := result.get("tools"), list):
            result["tools"] = [good for tool in tools if (good := _tool(tool)) is not None]
    return message


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
    """A tool's schema; nothing of one that is nested so deeply that the SDK could not take it."""
    schema = tool.get(key)
    if not isinstance(schema, dict):
        return {}
    level: list[object] = [schema]
    for _ in range(_DEEPEST):
        level = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return schema
    logger.warning("left out %s of the tool %.80r: it is nested deeper than %d levels", key, tool.get("name"), _DEEPEST)
    return {}
