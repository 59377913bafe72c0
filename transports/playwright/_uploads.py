"""Uploads: content in the parameters of a call, moved into the page in the fastest way (docs/performance.md)."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pybase64

from .._internal.files import open_regular, read_regular
from ..errors import CallTimeout, TransportError, UsageError
from ..protocol._find_content import Found, replace
from ..protocol._strict_json import encode_json
from ..protocol.binary import BinaryData, LocalFile
from ._agent import Agent, PageObject

#: Bytes up to which content travels as base64 in the call itself: faster than another round trip (measured).
_MAX_INLINE = 64 * 1024
_SLICE = 3 << 20  # 4 MB of base64


class Uploads:
    """Uploads to one document. ``folder`` is for bytes that must become a file first.

    With ``near`` the browser was started here and sees our files. Otherwise that is probed with the first upload.
    """

    def __init__(self, agent: Agent, folder: Path, *, near: bool) -> None:
        self._agent = agent
        self._folder = folder
        self._near = True if near else None

    def prepare(
        self, payload: dict[str, Any], content: Sequence[Found], *, timeout: float
    ) -> AbstractAsyncContextManager[tuple[str, list[PageObject]]]:
        """Prepare a call for the page's agent: its JSON, and one ``<input type=file>`` for each large content.

        The app receives ``{content: ArrayBuffer, mimeType, size, filename}`` (docs/protocol.md 9.13). The inputs are
        released when the block ends. Raises :class:`~transports.errors.UsageError` for content that cannot be sent.
        """
        if not content:
            return contextlib.nullcontext((encode_json(payload).decode(), []))
        return self._with_content(payload, content, timeout)

    @contextlib.asynccontextmanager
    async def _with_content(
        self, payload: dict[str, Any], content: Sequence[Found], timeout: float
    ) -> AsyncIterator[tuple[str, list[PageObject]]]:
        descriptors: dict[Any, object] = {}
        inline: list[object] = []
        files: list[object] = []
        elements: list[PageObject] = []
        try:
            with contextlib.ExitStack() as stack:
                for found in content:
                    assert isinstance(found.binary, BinaryData)
                    descriptors[found.path] = _descriptor(found.binary)
                    place = [*found.path, "content"]
                    data = await asyncio.to_thread(_inline_bytes, found.binary)
                    if data is not None:
                        inline.append([place, pybase64.b64encode(data).decode()])
                        continue
                    path = await asyncio.to_thread(_as_file, found.binary, self._folder, stack)
                    elements.append(await self._element(path, timeout))
                    files.append(place)
                params = replace(payload["params"], descriptors)
                yield encode_json({**payload, "params": params, "base64": inline, "files": files}).decode(), elements
        finally:
            with contextlib.suppress(TransportError):
                for element in elements:
                    await self._agent.release_object(element)

    async def _element(self, path: Path, timeout: float) -> PageObject:
        """Return an ``<input>`` of the page with the file.

        A browser on another machine cannot read our files. Then the content travels as text, into an object with the
        same interface.
        """
        if self._near is None:
            self._near = await self._sees_our_files(timeout)
        if self._near and (element := await self._file_input(path, timeout)) is not None:
            return element
        buffer = await self._agent.invoke("createFileBuffer", timeout=timeout, returns=PageObject)
        with open_regular(path) as file:
            while part := await asyncio.to_thread(file.read, _SLICE):
                await self._agent.invoke("appendToBuffer", buffer, pybase64.b64encode(part).decode(), timeout=timeout)
        return buffer

    async def _sees_our_files(self, timeout: float) -> bool:
        """Return whether the browser reads our disk. The probe has a random name: another machine may have a file of
        the same path and size, but not of this name."""
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix="probe-") as file:
            file.write(b"near")
            file.flush()
            element = await self._file_input(Path(file.name), timeout)
        if element is not None:
            await self._agent.release_object(element)
        return element is not None

    async def _file_input(self, path: Path, timeout: float) -> PageObject | None:
        """Return an input with the file, or ``None`` if the browser does not find the file."""
        element = await self._agent.invoke("createFileInput", timeout=timeout, returns=PageObject)
        try:
            await self._agent.set_file(element, path, timeout=timeout)
            if await self._agent.invoke("chosenSize", element, timeout=timeout) == path.stat().st_size:
                return element
        except TransportError as error:
            if not error.session_survives or isinstance(error, CallTimeout):
                raise
        await self._agent.release_object(element)
        return None


def _descriptor(binary: BinaryData) -> dict[str, object]:
    described = {"content": None, "mimeType": binary.mime_type or "application/octet-stream", "size": binary.size}
    if binary.filename:
        described["filename"] = binary.filename
    return {**binary.extra, **described}


def _inline_bytes(binary: BinaryData) -> bytes | None:
    """Return the bytes if they are few enough to travel inside the call."""
    match binary.content:
        case bytes() as data:
            return data if len(data) <= _MAX_INLINE else None
        case LocalFile(path):
            return read_regular(path, _MAX_INLINE) if path.stat().st_size <= _MAX_INLINE else None
        case _:
            raise UsageError("only bytes, files and BinaryData of these can be sent as parameters")


def _as_file(binary: BinaryData, folder: Path, stack: contextlib.ExitStack) -> Path:
    """Return a file with the content: the caller's own, or a temporary one that ``stack`` removes."""
    if isinstance(binary.content, LocalFile):
        return binary.content.path.resolve()
    with tempfile.NamedTemporaryFile(dir=folder, prefix="input-", delete=False) as file:
        stack.callback(Path(file.name).unlink)
        for chunk in binary.chunks():
            file.write(chunk)
    return Path(file.name)
