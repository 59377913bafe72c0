"""Content between a page and files, in the fastest way (docs/performance.md).

:class:`Ladder` moves content that is too large for an answer out of the page. There are three rungs, the fastest first.
Each is tried if the one before it is unusable:

1. ``download``: the browser itself writes the file.
2. ``stream``: CDP ``IO.resolveBlob`` and ``IO.read``, 4 MB at a time.
3. ``slices``: base64 text, 8 MB at a time.

:class:`Uploads` moves content in the parameters of a call into the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pybase64

from .._internal.files import open_regular, read_regular
from .._internal.tasks import cancel_and_wait, in_thread, spawn
from .._internal.telemetry import annotate
from ..artifacts._content import too_large
from ..artifacts._files import map_os_errors
from ..errors import (
    CallTimeout,
    ProtocolError,
    SizeMismatch,
    TooLarge,
    TransportError,
    UnsupportedBinary,
    UsageError,
)
from ..protocol._find_content import Found, replace_values
from ..protocol._strict_json import encode_json
from ..protocol.binary import BinaryData, Handle, LocalFile
from ._agent import Agent, PageObject
from ._downloads import LIMITS, MB, CdpDownloads, Limits, PlaywrightDownloads, RungUnusable, move_file, remaining
from ._frames import FrameAgent
from ._received import Held, decode_base64, parse_json


class Ladder:
    """Ways of content out of a page. The size that the page declares is a limit as well as ``max_bytes``: each rung
    stops at the first byte beyond.

    ``downloads`` is ``None`` if the browser may not download for us. ``used`` counts the files by their rung."""

    def __init__(
        self,
        agent: Agent,
        downloads: CdpDownloads | PlaywrightDownloads | None,
        *,
        max_bytes: int,
        used: dict[str, int],
        limits: Limits = LIMITS,
    ) -> None:
        self._agent = agent
        self._max_bytes = max_bytes
        self.downloads = downloads
        self._moved = 0
        self._collecting: set[asyncio.Task[None]] = set()
        self.used = used
        self.limits = limits

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Write content of the page to ``path``, by the first rung that works. All rungs share ``timeout``.

        Raises :class:`~transports.errors.SizeMismatch` if no rung delivered every byte."""
        size = handle.size
        assert size is not None
        deadline = time.monotonic() + timeout
        failures: list[str] = []
        for rung, save in self._usable_rungs(size).items():
            try:
                await save(handle.id, size, path, deadline)
            except RungUnusable as error:
                failures.append(f"{rung}: {error}")
            except TooLarge:
                path.unlink(missing_ok=True)
                raise SizeMismatch(f"the page has more than the {size:,} bytes that it declared") from None
            else:
                saved_size = path.stat().st_size
                if saved_size == size:
                    self.used[rung] += 1
                    annotate({"abp.rung": rung})
                    self._collect_garbage(size)
                    return
                failures.append(f"{rung}: {saved_size} of {size} bytes")

            # The next rung begins with no file.
            path.unlink(missing_ok=True)
        raise SizeMismatch(f"content of {size} bytes could not be taken out of the page ({'; '.join(failures)})")

    def _usable_rungs(self, size: int) -> dict[str, Callable[[str, int, Path, float], Awaitable[None]]]:
        rungs: dict[str, Callable[[str, int, Path, float], Awaitable[None]]] = {}
        if self.downloads is not None and size >= self.limits.download_from:
            rungs["download"] = self._save_by_download
        if self._agent.channel.cdp is not None:
            rungs["stream"] = self._save_by_stream
        rungs["slices"] = self._save_by_slices
        return rungs

    async def read_answer(self, answer: str, folder: Path, *, timeout: float) -> bytes:
        """Return a text that was too long for an answer. ``answer`` is the reference to it (:func:`is_reference`)."""
        held = parse_json(answer, Held, "a long answer")
        # Base64 makes 4 characters of 3 bytes; the rest of the JSON may need up to 1 MB.
        max_size = self._max_bytes * 4 // 3 + MB
        try:
            if held.size > max_size:
                raise too_large(self._max_bytes)
            with tempfile.TemporaryDirectory(prefix="content-", dir=folder) as temporary:
                path = Path(temporary) / "content"
                await self.save(Handle(held.id, held.size), path, timeout=timeout)
                return await asyncio.to_thread(path.read_bytes)
        finally:
            with contextlib.suppress(TransportError):
                await self._agent.invoke("release", held.id, timeout=2.0)

    async def save_url(self, url: str, path: Path, *, timeout: float) -> None:
        """Save a ``blob:`` URL, which only the page itself can read."""
        deadline = time.monotonic() + timeout
        if self.downloads is not None:
            try:
                # The size is unknown. A large one makes the download wait for its turn rather than fail.
                size = self.limits.max_whole
                await self.downloads.save(self._agent, url, path, size=size, limit=self._max_bytes, deadline=deadline)
                return
            except RungUnusable:
                path.unlink(missing_ok=True)

        try:
            answer = await self._agent.invoke("holdUrl", url, timeout=remaining(deadline), returns=str)
            held = parse_json(answer, Held, "the content of a blob: URL")
        except ProtocolError as error:
            raise TransportError(f"the page's blob: URL could not be read: {error.message}") from None

        try:
            if held.size > self._max_bytes:
                raise too_large(self._max_bytes)
            await self.save(Handle(held.id, held.size), path, timeout=remaining(deadline))
        finally:
            await self._agent.invoke("release", held.id, timeout=5)

    def _collect_garbage(self, size: int) -> None:
        """Let the browser collect garbage after every ``collect_every`` bytes. Until then, saved blobs take up its
        limited space, so the next download waits for the collection."""
        self._moved += size
        if self._moved >= self.limits.collect_every:
            self._moved = 0
            spawn(self._collect_garbage_now(), self._collecting)

    async def _collect_garbage_now(self) -> None:
        with contextlib.suppress(TransportError):  # a lost page fails the next call anyway
            await self._agent.with_deadline(self._agent.channel.collect_garbage(), "collecting garbage", timeout=10)

    async def _wait_for_collection(self) -> None:
        if self._collecting:
            await asyncio.wait(tuple(self._collecting))

    async def aclose(self) -> None:
        await cancel_and_wait(tuple(self._collecting))

    # --- rung 1: a download, written by the browser -------------------------------------------------------------------

    async def _save_by_download(self, held_id: str, size: int, path: Path, deadline: float) -> None:
        assert self.downloads is not None
        await self._wait_for_collection()
        if size <= self.limits.max_whole:
            await self.downloads.save_held(self._agent, held_id, 0, size, path, size=size, deadline=deadline)
        else:
            await self._download_slices(self.downloads, held_id, size, path, deadline)

    async def _download_slices(
        self, downloads: CdpDownloads | PlaywrightDownloads, held_id: str, size: int, path: Path, deadline: float
    ) -> None:
        """Download slices, and append each to ``path`` while the next one is downloaded."""
        appending: asyncio.Future[None] | None = None
        slice_paths = [path.with_name(f"{path.name}.slice{number}") for number in range(2)]
        try:
            for number, start in enumerate(range(0, size, self.limits.slice_size)):
                end = min(start + self.limits.slice_size, size)
                slice_path = slice_paths[number % 2]
                await downloads.save_held(self._agent, held_id, start, end, slice_path, size=size, deadline=deadline)

                if appending is not None:
                    await appending
                appending = asyncio.ensure_future(in_thread(_append_slice, slice_path, path))

                await self._wait_for_collection()
                self._collect_garbage(end - start)
            assert appending is not None
            await appending
        finally:
            try:
                if appending is not None:
                    await asyncio.gather(appending, return_exceptions=True)
            finally:
                # Remove the slices even if the wait above is cancelled.
                for slice_path in slice_paths:
                    slice_path.unlink(missing_ok=True)

    # --- rung 2: a stream over CDP ------------------------------------------------------------------------------------

    async def _save_by_stream(self, held_id: str, size: int, path: Path, deadline: float) -> None:
        try:
            blob = await self._agent.invoke("blob", held_id, 0, size, timeout=remaining(deadline), returns=PageObject)
            try:
                reply = await self._agent.send("IO.resolveBlob", {"objectId": blob.ref}, timeout=remaining(deadline))
                await self.save_stream(f"blob:{reply['uuid']}", path, limit=size, timeout=remaining(deadline))
            finally:
                # Release the blob only after the last byte: then nothing refers to it, and it may be collected.
                await self._agent.release_object(blob)
        except (CallTimeout, ProtocolError):
            raise
        except TransportError as error:
            if error.session_survives:
                raise RungUnusable(error.message) from None
            raise

    async def save_stream(self, stream: str, path: Path, *, timeout: float, limit: int | None = None) -> None:
        """Write a CDP stream to ``path``, and close the stream. ``limit`` is by default the largest allowed content."""
        if limit is None:
            limit = self._max_bytes
        size = 0
        try:
            with path.open("xb") as file:
                async for data in self._read_stream(stream, time.monotonic() + timeout):
                    size += len(data)
                    if size > limit:
                        raise too_large(limit)
                    await asyncio.to_thread(file.write, data)
        finally:
            await self._agent.send("IO.close", {"handle": stream}, timeout=5)

    async def _read_stream(self, stream: str, deadline: float) -> AsyncIterator[bytes]:
        chunk_size = 4 * MB
        if isinstance(self._agent, FrameAgent):
            # CDP messages of a frame are nested in messages of the page's session.
            chunk_size = 1 * MB
        is_at_end = False
        while not is_at_end:
            command = {"handle": stream, "size": chunk_size}
            chunk = await self._agent.send("IO.read", command, timeout=remaining(deadline))
            data = chunk["data"].encode()
            yield pybase64.b64decode(data, validate=True) if chunk.get("base64Encoded") else data
            is_at_end = chunk["eof"]

    # --- rung 3: base64 text ------------------------------------------------------------------------------------------

    async def _save_by_slices(self, held_id: str, size: int, path: Path, deadline: float) -> None:
        slice_size = 6 * MB  # 8 MB of base64
        with path.open("xb") as file:
            for start in range(0, size, slice_size):
                end = min(start + slice_size, size)
                try:
                    text = await self._agent.invoke(
                        "base64", held_id, start, end, timeout=remaining(deadline), returns=str
                    )
                except ProtocolError as error:
                    # The file behind a File or Blob has changed or is gone.
                    raise UnsupportedBinary(f"the app returned content that cannot be read: {error.message}") from None
                # Base64 writes 4 characters for every 3 bytes, and for a shorter last group. More cannot be our slice.
                max_length = (end - start + 2) // 3 * 4
                if len(text) > max_length:
                    raise too_large(size)
                data = await asyncio.to_thread(decode_base64, text)
                await asyncio.to_thread(file.write, data)


def _append_slice(slice_path: Path, path: Path) -> None:
    if not path.exists():
        move_file(slice_path, path)
        return

    with slice_path.open("rb", buffering=0) as source, path.open("r+b", buffering=0) as target:
        target.seek(0, os.SEEK_END)
        # A copy by the kernel is ten times as fast, where there is one.
        try:
            while os.copy_file_range(source.fileno(), target.fileno(), 64 * MB):
                pass
        except (AttributeError, OSError):
            shutil.copyfileobj(source, target, 256 * 1024)
    slice_path.unlink()


class Uploads:
    """Files of calls on their way into the page. Unless the browser ``shares_disk``, the first upload tries whether it
    sees our files."""

    def __init__(self, agent: Agent, folder: Path, *, shares_disk: bool) -> None:
        self._agent = agent
        self._folder = folder
        # ``None`` means not known yet.
        self._shares_disk = True if shares_disk else None

    @contextlib.asynccontextmanager
    async def prepare(
        self, payload: dict[str, Any], content: Sequence[Found], *, timeout: float
    ) -> AsyncIterator[tuple[str, list[PageObject]]]:
        """Yield the JSON of a call, and an ``<input type=file>`` for each large content.

        The app receives ``{content: ArrayBuffer, mimeType, size, filename}`` (docs/protocol.md 9.13)."""
        if not content:
            yield encode_json(payload).decode(), []
            return

        descriptors: dict[Any, object] = {}
        # Places of small contents, each with its base64, and places of large contents, in the order of ``elements``.
        inline_contents: list[object] = []
        file_places: list[object] = []
        elements: list[PageObject] = []
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._release_objects, elements)
            files = stack.enter_context(contextlib.ExitStack())
            for item in content:
                assert isinstance(item.binary, BinaryData)
                descriptors[item.path] = _content_descriptor(item.binary)
                content_path = [*item.path, "content"]
                data = await asyncio.to_thread(_inline_bytes, item.binary)
                if data is not None:
                    inline_contents.append([content_path, pybase64.b64encode(data).decode()])
                else:
                    file = await asyncio.to_thread(_file_with_content, item.binary, self._folder, files)
                    elements.append(await self._element_with_file(file, timeout))
                    file_places.append(content_path)

            params = replace_values(payload["params"], descriptors)
            call = {**payload, "params": params, "base64": inline_contents, "files": file_places}
            yield encode_json(call).decode(), elements

    async def _release_objects(self, objects: Sequence[PageObject]) -> None:
        with contextlib.suppress(TransportError):
            for page_object in objects:
                await self._agent.release_object(page_object)

    async def _element_with_file(self, path: Path, timeout: float) -> PageObject:
        """Return an ``<input>`` with the file or, for a browser on another machine, an object that holds its bytes."""
        if self._shares_disk is None:
            self._shares_disk = await self._sees_our_files(timeout)
        if self._shares_disk:
            element = await self._file_input(path, timeout)
            if element is not None:
                return element

        buffer = await self._agent.invoke("createFileBuffer", timeout=timeout, returns=PageObject)
        with open_regular(path) as file:
            chunk_size = 3 * MB  # 4 MB of base64
            while chunk := await asyncio.to_thread(file.read, chunk_size):
                text = pybase64.b64encode(chunk).decode()
                await self._agent.invoke("appendToBuffer", buffer, text, timeout=timeout)
        return buffer

    async def _sees_our_files(self, timeout: float) -> bool:
        """Return whether the browser sees our files. The probe has a random name, because another machine may have a
        file with the path and size of any other file."""
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix="probe-") as file:
            file.write(b"near")
            file.flush()
            element = await self._file_input(Path(file.name), timeout)
        if element is not None:
            await self._agent.release_object(element)
        return element is not None

    async def _file_input(self, path: Path, timeout: float) -> PageObject | None:
        """Return an ``<input>`` with a file, or ``None`` if the browser does not see the same file."""
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


def _content_descriptor(binary: BinaryData) -> dict[str, object]:
    descriptor: dict[str, object] = {
        **binary.extra,
        "content": None,
        "mimeType": binary.mime_type or "application/octet-stream",
        "size": binary.size,
    }
    if binary.filename:
        descriptor["filename"] = binary.filename
    return descriptor


def _inline_bytes(binary: BinaryData) -> bytes | None:
    """Return content that is small enough to travel inside the call, or ``None`` for larger content."""
    max_size = 64 * 1024  # up to here, base64 in the call is faster than another round trip (measured)
    match binary.content:
        case bytes() as data if len(data) <= max_size:
            return data
        case LocalFile(path) if path.stat().st_size <= max_size:
            return read_regular(path, max_size)
        case bytes() | LocalFile():
            return None
    raise UsageError("only bytes, files and BinaryData of these can be sent as parameters")


def _file_with_content(binary: BinaryData, folder: Path, stack: contextlib.ExitStack) -> Path:
    """Return the file of the content or, for bytes, a new file in ``folder``, which ``stack`` removes."""
    if isinstance(binary.content, LocalFile):
        return binary.content.path.resolve()
    with (
        map_os_errors("write a parameter for the browser", folder, other="name another one with TMPDIR"),
        tempfile.NamedTemporaryFile(dir=folder, prefix="input-", delete=False) as file,
    ):
        stack.callback(Path(file.name).unlink)
        for chunk in binary.chunks():
            file.write(chunk)
    return Path(file.name)
