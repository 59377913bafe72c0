"""Recorder of another transport: every operation with its outcome, and every event, as they happen.

:func:`record_transport` and :func:`replay_transport` choose the classes with the tools of a page or a server, where
there are any.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

from .._internal.privacy._redaction import REDACTED
from ..artifacts._base import Staged
from ..artifacts._content import PutOptions
from ..artifacts._ref import ArtifactRef
from ..base import (
    Fetch,
    Fetched,
    PageTools,
    PdfOptions,
    ResourcePage,
    ResourceTools,
    ScreenshotOptions,
    ServerCall,
    Transport,
    WrappedTransport,
    keep_call,
    keeping_calls,
    keeps_calls,
    view_tools,
)
from ..errors import ABPError, Disconnected, NotRecorded
from ..protocol._discovery import Discovery
from ..protocol._strict_json import parser_limits
from ..protocol.binary import BinaryData, Download, Handle
from ..protocol.messages import Effect, Message
from ._file import (
    FORMAT,
    STATE,
    Abandoned,
    Answer,
    ContentPacker,
    EventEntry,
    Failed,
    Header,
    Kind,
    Operation,
    RecordedEffect,
    Recording,
    Writer,
    hash_content,
    pack_discovery,
    read_header,
    record_error,
    scrubbed,
    unpack,
    unpack_content,
)
from ._replay import ReplayTransport

if TYPE_CHECKING:
    from ..playwright._source import PageSource

logger = logging.getLogger("transports.recording")


class TeeStaged(Staged):
    """Staged file that is also written to the file ``copy``. For downloads, which only write and reset."""

    def __init__(self, staged: Staged, copy: Path) -> None:
        self.copy = copy
        self._staged = staged
        copy.touch()

    @property
    def path(self) -> Path:
        """Path of the staged file."""
        return self._staged.path

    @property
    def size(self) -> int:
        """Size of the staged file in bytes."""
        return self._staged.size

    async def write(self, chunk: bytes | memoryview) -> None:
        """Append a chunk to both files."""
        await self._staged.write(chunk)
        await asyncio.to_thread(self._append, chunk)

    def _append(self, chunk: bytes | memoryview) -> None:
        with self.copy.open("ab") as file:
            file.write(chunk)

    async def reset(self) -> None:
        """Empty both files."""
        await self._staged.reset()
        self.copy.write_bytes(b"")

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Commit the staged file. The copy stays."""
        return await self._staged.commit(**options)


T = TypeVar("T")

#: Fields of an :class:`Answer`.
Fields: TypeAlias = Mapping[str, object]
Discover: TypeAlias = Callable[[], Awaitable[Discovery]]


class Recorder(WrappedTransport):
    """Transport that delegates to ``wrapped`` and records everything but releases, cookies and the server's address.

    Opening raises :class:`~transports.errors.UsageError` if the file exists and is not a recording. Every method may
    raise :class:`~transports.errors.StoreError`, since a recording with gaps is useless.
    """

    def __init__(self, wrapped: Transport, recording: Recording) -> None:
        super().__init__(wrapped)
        self._recording = recording
        self._scrubber = recording.scrubber()
        self._numbers = itertools.count()
        self._writer: Writer | None = None
        self._packer: ContentPacker | None = None
        self._state: object = None
        self._discovers = False

    async def open(self) -> None:
        """Create the file and open the wrapped transport."""
        header = Header(
            abp_recording=FORMAT,
            transport=self.name,
            tools=isinstance(self.wrapped, PageTools),
            server=isinstance(self.wrapped, ResourceTools),
            discovers=self._discovers,
            fields=[*self._recording.fields],
        )
        self._writer = writer = Writer(Path(self._recording.path), header)
        self._packer = ContentPacker(writer.store_content, self._scrubber)
        await self._record("open", super().open)

    async def aclose(self) -> None:
        """Close the wrapped transport, then the file."""
        if self._writer is None:
            await self.wrapped.aclose()
            return
        try:
            await self._record("close", self.wrapped.aclose)
        finally:
            self._writer.close()

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Pass a request on, and record its reply or error."""
        return await self._record_request(message, timeout=timeout)

    async def _record_request(
        self, message: Message, more: Callable[[], Awaitable[Fields]] | None = None, *, timeout: float
    ) -> Message:
        """Pass a request on and record its reply, with ``more`` fields that are known after it."""

        async def describe(reply: Message) -> Fields:
            fields = await self._reply(reply)
            return fields if more is None else {**fields, **await more()}

        return await self._record(
            "request",
            lambda: self.wrapped.request(message, timeout=timeout),
            describe,
            type=message.type,
            id=message.id,
            payload=message.payload,
        )

    async def notify(self, message: Message) -> None:
        """Pass a message on, and record it."""
        await self._record(
            "notify",
            lambda: self.wrapped.notify(message),
            type=message.type,
            id=message.id,
            payload=message.payload,
        )

    async def events(self) -> AsyncIterator[Message]:
        """Yield the events of the wrapped transport, each recorded first."""
        async for message in self.wrapped.events():
            if (writer := self._writer) is not None:
                payload = message.payload
                happened = EventEntry(at=writer.now, type=message.type, id=message.id)
                with self._skip_unrecordable(lambda _: None):
                    if isinstance(payload, Effect):
                        change: dict[str, object] = {"effect": self._effect(payload)}
                    else:
                        change = {"payload": await scrubbed(self._scrubber, payload)}
                    writer.write(happened.model_copy(update=change))
            yield message

    def discovering(self, discover: Discover) -> Discover:
        """Return ``discover`` with its result recorded.

        Must be called before the transport is opened; the returned function only afterwards.
        """
        self._discovers = True

        async def describe(found: Discovery) -> Fields:
            return {"payload": pack_discovery(found, self._scrubber)}

        return lambda: self._record("discover", discover, describe)

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Fetch content, and store a copy in the recording."""

        async def describe(_: None) -> Fields:
            return {"leaves": [await self._require_open()[1].file(path)]}

        await self._record(
            "save", lambda: self.wrapped.save(handle, path, timeout=timeout), describe, payload={"handle": handle.id}
        )

    async def fetch_download(
        self, reference: Download, staged: Staged, fetch: Callable[[Staged], Awaitable[Fetched]]
    ) -> Fetched:
        """Run a download of the session and record its content."""
        with tempfile.TemporaryDirectory(prefix="abp-recording-") as folder:
            copy = TeeStaged(staged, Path(folder) / "download")

            async def describe(fetched: Fetched) -> Fields:
                return {
                    "payload": dataclasses.asdict(fetched),
                    "leaves": [await self._require_open()[1].file(copy.copy)],
                }

            return await self._record(
                "download",
                lambda: self.wrapped.fetch_download(reference, copy, fetch),
                describe,
                payload={"url": reference.url},
            )

    # --- writing ------------------------------------------------------------------------------------------------------

    def _require_open(self) -> tuple[Writer, ContentPacker]:
        if self._writer is None or self._packer is None:
            raise Disconnected("the transport is not open; use it inside `async with`")
        return self._writer, self._packer

    async def _record(
        self,
        kind: Kind,
        work: Callable[[], Awaitable[T]],
        describe: Callable[[T], Awaitable[Fields]] | None = None,
        *,
        type: str = "",
        id: str | None = None,
        payload: object = None,
    ) -> T:
        """Record an operation, run it, and record its outcome.

        ``describe`` turns the result into fields of an :class:`~transports.recording._file.Answer`.
        """
        writer, packer = self._require_open()
        n, asked_at = next(self._numbers), writer.now
        plain, leaves = await packer.pack(payload, is_parameter=True)
        writer.write(Operation(n=n, at=asked_at, kind=kind, type=type, id=id, payload=plain, leaves=leaves))
        try:
            result = await work()
            self._record_state(writer)
            with self._skip_unrecordable(
                lambda error: writer.write(Failed(n=n, at=writer.now, error=record_error(error, self._scrubber)))
            ):
                fields = await describe(result) if describe else {}
                writer.write(Answer(n=n, at=writer.now).model_copy(update=fields))
        except ABPError as error:
            self._record_state(writer)
            writer.write(Failed(n=n, at=writer.now, error=record_error(error, self._scrubber)))
            raise
        except BaseException:
            writer.write(Abandoned(n=n, at=writer.now))
            raise
        return result

    @contextmanager
    def _skip_unrecordable(self, instead: Callable[[NotRecorded], None]) -> Iterator[None]:
        """Log values that JSON cannot hold and call ``instead``, so that they do not break the conversation."""
        try:
            with parser_limits():
                yield
        except (TypeError, ValueError) as error:
            failure = NotRecorded(f"the outcome could not be recorded, since it is not JSON: {error}")
            logger.warning("%s", failure.message)
            instead(failure)

    def _record_state(self, writer: Writer) -> None:
        """Record the page's address and the features if they have changed, as they may after each operation."""
        self._follow()
        url = None if self.url is None else self._scrubber.text(self.url)
        state = {"url": url, **dataclasses.asdict(self.features)}
        if state != self._state:
            self._state = state
            writer.write(EventEntry(at=writer.now, type=STATE, payload=state))

    async def _reply(self, reply: Message) -> Fields:
        _, packer = self._require_open()
        payload, leaves = await packer.pack(reply.payload)
        return {
            "type": reply.type,
            "payload": payload,
            "leaves": leaves,
            "outputs": [await packer.leaf(output) for output in reply.outputs],
            "effects": [self._effect(effect) for effect in reply.effects],
            "warnings": [self._scrubber.text(warning) for warning in reply.warnings],
        }

    def _effect(self, effect: Effect) -> RecordedEffect:
        detail = self._scrubber.tree(dict(effect.detail))
        assert isinstance(detail, dict)
        return RecordedEffect(kind=effect.kind, call=effect.call, detail=detail)


def record_transport(transport: Transport, recording: Recording) -> Recorder:
    """Return a recording wrapper of ``transport``, with its tools of a page or a server if it has any."""
    kind = PageRecorder if isinstance(transport, PageTools) else Recorder
    return (ServerRecorder if isinstance(transport, ResourceTools) else kind)(transport, recording)


def replay_transport(path: str | Path) -> ReplayTransport:
    """Return a transport that plays the recording ``path``, with the tools of a page or a server if it has any."""
    header = read_header(Path(path))
    kind = PageReplay if header is not None and header.tools else ReplayTransport
    return (ServerReplay if header is not None and header.server else kind)(path)


class PageRecorder(Recorder):
    """Recorder of a transport with a page's tools."""

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float, fetch: Fetch | None) -> BinaryData:
        """Pass the call on and record the PDF."""
        tools = self._tools()
        arguments = {"html": html, "options": dict(options)}
        return await self._record(
            "render_to_pdf",
            lambda: tools.render_to_pdf(html, options, timeout=timeout, fetch=fetch),
            self._binary_fields,
            payload=arguments,
        )

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
        """Pass the call on and record the picture."""
        tools = self._tools()
        arguments = {"options": dict(options)}
        return await self._record(
            "screenshot", lambda: tools.screenshot(options, timeout=timeout), self._binary_fields, payload=arguments
        )

    def _tools(self) -> PageTools:
        assert isinstance(self.wrapped, PageTools)
        return self.wrapped

    async def _binary_fields(self, binary: BinaryData) -> Fields:
        return {"leaves": [await self._require_open()[1].leaf(binary)]}


class PageReplay(ReplayTransport):
    """Replay of a transport with a page's tools."""

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float, fetch: Fetch | None) -> BinaryData:
        """Return the recorded PDF for the same HTML and options."""
        return await self._play_binary("render_to_pdf", {"html": html, "options": dict(options)})

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
        """Return the recorded picture for the same options."""
        return await self._play_binary("screenshot", {"options": dict(options)})

    async def _play_binary(self, kind: Kind, arguments: Mapping[str, object]) -> BinaryData:
        action, answer = await self._play(await self._operation_for(kind, arguments))
        line = action.end or action.start
        for leaf in answer.leaves:
            if isinstance(made := unpack_content(self._reader, line, leaf), BinaryData):
                return made
        raise self._reader.error(line, "the content is missing", "undo the edit, or record again")


class ServerRecorder(Recorder):
    """Recorder of a transport to an MCP server: resources, and what its views are shown and ask."""

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Pass a request on, and record its reply or error, and the call as the server's view is shown it."""
        if not keeps_calls():
            return await super().request(message, timeout=timeout)
        with keeping_calls() as kept:
            reply = await self._record_request(message, lambda: self._shown(kept), timeout=timeout)
        keep_call(*kept)
        return reply

    async def _shown(self, kept: list[ServerCall]) -> Fields:
        if not kept:
            return {}
        shown, leaves = await self._require_open()[1].pack(dataclasses.asdict(kept[-1]))
        return {"shown": shown, "shown_leaves": leaves}

    async def relay(self, method: str, params: Mapping[str, object], *, timeout: float) -> Mapping[str, object]:
        """Pass a request of a view on, and record its answer. Logs that a document is not recorded word for word."""
        server = view_tools(self.wrapped)
        assert server is not None

        async def describe(result: Mapping[str, object]) -> Fields:
            fields = await self._payload(result)
            if method == "resources/read" and not await asyncio.to_thread(_has_same_texts, result, fields):
                uri = self._scrubber.text(str(params.get("uri"))[:200])
                logger.warning(
                    "%s has texts that look like secrets; they are recorded as %s, and its script may fail in a replay",
                    uri,
                    REDACTED,
                )
            return fields

        return await self._record(
            "relay",
            lambda: server.relay(method, params, timeout=timeout),
            describe,
            type=method,
            payload=dict(params),
        )

    async def listed_view(self, uri: str, read: Mapping[str, object], *, timeout: float) -> Mapping[str, object] | None:
        """Return a view's entry in the list of resources, and record it."""
        server = view_tools(self.wrapped)
        assert server is not None

        async def describe(listed: Mapping[str, object] | None) -> Fields:
            return await self._payload({"listed": listed})

        return await self._record(
            "listed_view", lambda: server.listed_view(uri, read, timeout=timeout), describe, payload={"uri": uri}
        )

    @property
    def has_resources(self) -> bool:
        """True if the server declares resources."""
        return self._tools().has_resources

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return a page of the server's list, and record it."""
        tools = self._tools()
        return await self._record(
            "list_resources",
            lambda: tools.list_resources(cursor, timeout=timeout),
            self._page,
            payload={"cursor": cursor},
        )

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return a page of the server's list, and record it."""
        tools = self._tools()
        return await self._record(
            "list_templates",
            lambda: tools.list_templates(cursor, timeout=timeout),
            self._page,
            payload={"cursor": cursor},
        )

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        """Read a resource, and record it with its content."""
        tools = self._tools()
        return await self._record(
            "read_resource", lambda: tools.read_resource(uri, timeout=timeout), self._payload, payload={"uri": uri}
        )

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Subscribe to changes of a resource, and record that."""
        tools = self._tools()
        await self._record(
            "subscribe_resource", lambda: tools.subscribe_resource(uri, timeout=timeout), payload={"uri": uri}
        )

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        """End a subscription, and record that."""
        tools = self._tools()
        await self._record(
            "unsubscribe_resource", lambda: tools.unsubscribe_resource(uri, timeout=timeout), payload={"uri": uri}
        )

    def _tools(self) -> ResourceTools:
        assert isinstance(self.wrapped, ResourceTools)
        return self.wrapped

    async def _payload(self, result: Mapping[str, object]) -> Fields:
        payload, leaves = await self._require_open()[1].pack(dict(result))
        return {"payload": payload, "leaves": leaves}

    async def _page(self, page: ResourcePage) -> Fields:
        return await self._payload({"items": [*page.items], "cursor": page.cursor})


def _has_same_texts(result: Mapping[str, object], fields: Mapping[str, Any]) -> bool:
    """Return whether the texts of a resource are recorded as they were read. Long ones are in files."""
    hashes = {tuple(leaf.path): leaf.sha256 for leaf in fields["leaves"]}
    read, kept = result.get("contents"), fields["payload"].get("contents")
    if not isinstance(read, list) or not isinstance(kept, list):
        return bool(read == kept)
    for index, (before, after) in enumerate(zip(read, kept, strict=True)):
        for key in {"text", "blob"} & before.keys():
            as_file = hashes.get(("contents", index, key))
            if before[key] != after[key] and as_file != hash_content([str(before[key]).encode()]):
                return False
    return True


class ServerReplay(ReplayTransport):
    """Replay of a transport to an MCP server. ``views`` is the source of the pages in which its views are shown."""

    views: PageSource | None = None

    @property
    def has_resources(self) -> bool:
        """True: what was not recorded is an error of its own."""
        return True

    async def relay(self, method: str, params: Mapping[str, object], *, timeout: float) -> Mapping[str, object]:
        """Return the recorded answer to a request of a view."""
        return await self._play_payload("relay", dict(params), type=method)

    async def listed_view(self, uri: str, read: Mapping[str, object], *, timeout: float) -> Mapping[str, object] | None:
        """Return a view's recorded entry in the list of resources."""
        listed = (await self._play_payload("listed_view", {"uri": uri})).get("listed")
        return listed if isinstance(listed, dict) else None

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return a recorded page of the server's resources."""
        return _page_of(await self._play_payload("list_resources", {"cursor": cursor}))

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        """Return a recorded page of the server's templates."""
        return _page_of(await self._play_payload("list_templates", {"cursor": cursor}))

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        """Return a recorded resource."""
        return await self._play_payload("read_resource", {"uri": uri})

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Repeat a recorded subscription."""
        await self._play(await self._operation_for("subscribe_resource", {"uri": uri}))

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        """Repeat the recorded end of a subscription."""
        await self._play(await self._operation_for("unsubscribe_resource", {"uri": uri}))

    async def _play_payload(self, kind: Kind, payload: object, *, type: str = "") -> dict[str, Any]:
        asked = (await self._operation_for(kind, payload)).model_copy(update={"type": type})
        action, answer = await self._play(asked)
        line = action.end or action.start
        whole = await asyncio.to_thread(unpack, self._reader, line, answer.payload, answer.leaves)
        return self._object(line, whole)


def _page_of(payload: Mapping[str, Any]) -> ResourcePage:
    items = payload.get("items")
    return ResourcePage(items if isinstance(items, list) else [], payload.get("cursor"))
