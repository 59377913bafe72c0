"""File → page: content in parameters, each the best way (PERFORMANCE "Python → page")."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pybase64

from ...binary import BinaryData, LocalFile
from ...binary.detect import Found, replace
from ...errors import CallTimeout, TransportError, UsageError
from ...protocol.strict_json import encode_json
from ..page.agent import PageAgent
from ..page.channel import RemoteObject

__all__ = ["Inputs"]

#: Up to this many bytes base64 in the call itself is quicker than an extra round trip (measured).
_INLINE_UP_TO = 64 * 1024
_SLICE = 3 << 20  # 4 MB of base64


class Inputs:
    """Prepares the parameters of calls to one page; ``folder`` is for bytes that must become a file first."""

    def __init__(self, agent: PageAgent, folder: Path) -> None:
        self._agent = agent
        self._folder = folder

    @contextlib.asynccontextmanager
    async def prepared(
        self, payload: dict[str, Any], content: Sequence[Found], *, timeout: float
    ) -> AsyncIterator[tuple[str, list[RemoteObject]]]:
        """The call as the page's agent takes it: its JSON, and an ``<input type=file>`` per large content.

        The app receives ``{content: ArrayBuffer, mimeType, size, filename}`` (seed 001 "Binary Input").
        """
        if not content:
            yield encode_json(payload).decode(), []
            return
        descriptors: dict[Any, object] = {}
        inline: list[object] = []
        files: list[object] = []
        elements: list[RemoteObject] = []
        try:
            with contextlib.ExitStack() as stack:
                for found in content:
                    assert isinstance(found.binary, BinaryData)
                    descriptors[found.path] = _descriptor(found.binary)
                    place = [*found.path, "content"]
                    data = await asyncio.to_thread(_small, found.binary)
                    if data is not None:
                        inline.append([place, pybase64.b64encode(data).decode()])
                        continue
                    path = await asyncio.to_thread(_file, found.binary, self._folder, stack)
                    elements.append(await self._element(path, timeout))
                    files.append(place)
                params = replace(payload["params"], descriptors)
                yield encode_json({**payload, "params": params, "base64": inline, "files": files}).decode(), elements
        finally:
            with contextlib.suppress(TransportError):
                for element in elements:
                    await self._agent.forget(element)

    async def _element(self, path: Path, timeout: float) -> RemoteObject:
        """A file as an ``<input>`` of the page, or what stands for one where the browser, on another machine say, does
        not see our files: then the content travels as text."""
        size = path.stat().st_size
        element: RemoteObject = await self._agent.invoke("input", timeout=timeout, by_value=False)
        try:
            await self._agent.set_file(element, path, timeout=timeout)
            if await self._agent.invoke("chosen", element, timeout=timeout) == size:
                return element
        except TransportError as error:
            if not error.session_survives or isinstance(error, CallTimeout):
                raise
        await self._agent.forget(element)
        basket: RemoteObject = await self._agent.invoke("basket", timeout=timeout, by_value=False)
        with path.open("rb") as file:
            while part := await asyncio.to_thread(file.read, _SLICE):
                await self._agent.invoke("fill", basket, pybase64.b64encode(part).decode(), timeout=timeout)
        return basket


def _descriptor(binary: BinaryData) -> dict[str, object]:
    described = {"content": None, "mimeType": binary.mime_type or "application/octet-stream", "size": binary.size}
    if binary.filename:
        described["filename"] = binary.filename
    return {**binary.extra, **described}


def _small(binary: BinaryData) -> bytes | None:
    """The bytes, if there are few of them."""
    match binary.content:
        case bytes() as data:
            return data if len(data) <= _INLINE_UP_TO else None
        case LocalFile(path):
            return path.read_bytes() if path.stat().st_size <= _INLINE_UP_TO else None
        case _:
            raise UsageError("only bytes, files and BinaryData of these can be sent as parameters")


def _file(binary: BinaryData, folder: Path, stack: contextlib.ExitStack) -> Path:
    """The content as a file: the file itself, or a temporary one that the stack removes."""
    if isinstance(binary.content, LocalFile):
        return binary.content.path.resolve()
    with tempfile.NamedTemporaryFile(dir=folder, prefix="input-", delete=False) as file:
        stack.callback(Path(file.name).unlink)
        for chunk in binary.chunks():
            file.write(chunk)
    return Path(file.name)
