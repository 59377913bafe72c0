"""Recorder of another transport: every operation with its outcome, and every event, as they happen."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, Unpack

from .._internal.files import temp_folder
from .._internal.redaction import REDACTED
from ..artifacts._base import Staged
from ..artifacts._content import PutOptions
from ..artifacts._files import map_os_errors
from ..artifacts._ref import ArtifactRef
from ..base import Fetched, Transport, WrappedTransport
from ..errors import ABPError, Disconnected, NotRecorded
from ..protocol._capabilities import Discovery
from ..protocol._strict_json import parser_limits
from ..protocol.binary import Download, Handle
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
    record_error,
    scrubbed,
)

logger = logging.getLogger("transports.recording")

T = TypeVar("T")
#: Fields of an :class:`Answer`.
Fields: TypeAlias = Mapping[str, object]
Discover: TypeAlias = Callable[[], Awaitable[Discovery]]


class _TeeStaged(Staged):
    """A staged file that also writes a copy. Downloads only write and reset."""

    def __init__(self, staged: Staged, copy: Path) -> None:
        self._copy = copy
        self._staged = staged
        with _map_os_errors():
            copy.touch()

    @property
    def path(self) -> Path:
        return self._staged.path

    @property
    def size(self) -> int:
        return self._staged.size

    async def write(self, chunk: bytes | memoryview) -> None:
        await self._staged.write(chunk)

        def append() -> None:
            with _map_os_errors(), self._copy.open("ab") as file:
                file.write(chunk)

        await asyncio.to_thread(append)

    async def reset(self) -> None:
        await self._staged.reset()
        with _map_os_errors():
            self._copy.write_bytes(b"")

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        return await self._staged.commit(**options)


class Recorder(WrappedTransport):
    """Transport that records the conversation of another: everything but releases, cookies and the server's address.

    Opening raises :class:`~transports.errors.UsageError` if the file exists and is not a recording, or if another
    session records to it. Every method may raise :class:`~transports.errors.StoreError`, since a recording with gaps is
    useless.
    """

    _packer: ContentPacker

    def __init__(self, wrapped: Transport, recording: Recording) -> None:
        super().__init__(wrapped)
        self._recording = recording
        self._scrubber = recording.scrubber()
        self._numbers = itertools.count()
        self._writer: Writer | None = None
        self._state: object = None
        self._discovers = False

    async def open(self) -> None:
        header = Header(
            abp_recording=FORMAT,
            transport=self.name,
            server=self.features.views,
            discovers=self._discovers,
            fields=[*self._recording.fields],
        )
        self._writer = writer = Writer(Path(self._recording.path), header)
        self._packer = ContentPacker(writer.store_content, self._scrubber)
        await self._record("open", super().open)

    async def aclose(self) -> None:
        if self._writer is None:
            await self.wrapped.aclose()
            return
        try:
            await self._record("close", self.wrapped.aclose)
        finally:
            self._writer.close()

    async def request(self, message: Message, *, timeout: float) -> Message:
        async def describe(reply: Message) -> Fields:
            fields = await self._reply_fields(reply)
            if message.type == "view/request":
                await self._warn_of_changed_document(message.payload, reply.payload, fields)
            return fields

        return await self._record(
            "request",
            lambda: self.wrapped.request(message, timeout=timeout),
            describe,
            type=message.type,
            id=message.id,
            payload=message.payload,
        )

    async def _warn_of_changed_document(self, request: Any, result: Any, fields: Fields) -> None:
        """Warn if texts of a view's document were redacted, since its script may fail without them."""
        if request["method"] != "resources/read":
            return
        if await asyncio.to_thread(_has_same_texts, result, fields):
            return

        uri = self._scrubber.redact_text(str(request["params"].get("uri"))[:200])
        logger.warning(
            "%s has texts that look like secrets; they are recorded as %s, and its script may fail in a replay",
            uri,
            REDACTED,
        )

    async def notify(self, message: Message) -> None:
        await self._record(
            "notify",
            lambda: self.wrapped.notify(message),
            type=message.type,
            id=message.id,
            payload=message.payload,
        )

    async def events(self) -> AsyncIterator[Message]:
        async for message in self.wrapped.events():
            if self._writer is not None:
                await self._record_event(self._writer, message)
            yield message

    async def _record_event(self, writer: Writer, message: Message) -> None:
        entry = EventEntry(at=writer.now, type=message.type, id=message.id)
        with self._skip_unrecordable(writer):
            if isinstance(message.payload, Effect):
                content: dict[str, object] = {"effect": self._record_effect(message.payload)}
            else:
                content = {"payload": await scrubbed(self._scrubber, message.payload)}
            writer.write(entry.model_copy(update=content))

    def discovering(self, discover: Discover) -> Discover:
        """Return a function that discovers the manifest and records it. Call this before the transport is opened, and
        the returned function only afterwards."""
        self._discovers = True

        async def describe(discovery: Discovery) -> Fields:
            return {"payload": pack_discovery(discovery, self._scrubber)}

        return lambda: self._record("discover", discover, describe)

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        async def describe(_: None) -> Fields:
            return {"leaves": [await self._packer.pack_file(path)]}

        await self._record(
            "save", lambda: self.wrapped.save(handle, path, timeout=timeout), describe, payload={"handle": handle.id}
        )

    async def fetch_download(
        self, reference: Download, staged: Staged, fetch: Callable[[Staged], Awaitable[Fetched]]
    ) -> Fetched:
        with ExitStack() as stack:
            with _map_os_errors():
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="abp-recording-"))
            copy = Path(folder) / "download"

            async def describe(fetched: Fetched) -> Fields:
                return {"payload": dataclasses.asdict(fetched), "leaves": [await self._packer.pack_file(copy)]}

            return await self._record(
                "download",
                lambda: self.wrapped.fetch_download(reference, _TeeStaged(staged, copy), fetch),
                describe,
                payload={"url": reference.url},
            )

    # --- writing ------------------------------------------------------------------------------------------------------

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
        """Do ``work``, and write the operation and its outcome. ``describe`` makes fields of an :class:`Answer` of the
        result."""
        writer = self._writer
        if writer is None:
            raise Disconnected("the transport is not open; use it inside `async with`")
        number = next(self._numbers)
        started = writer.now
        packed_payload, leaves = await self._packer.pack(payload, is_parameter=True)
        writer.write(
            Operation(n=number, at=started, kind=kind, type=type, id=id, payload=packed_payload, leaves=leaves)
        )

        try:
            result = await work()
            self._record_state(writer)
            with self._skip_unrecordable(writer, number):
                fields: Fields = {}
                if describe is not None:
                    fields = await describe(result)
                writer.write(Answer(n=number, at=writer.now).model_copy(update=fields))
        except ABPError as error:
            self._record_state(writer)
            self._write_failure(writer, number, error)
            raise
        except BaseException:
            writer.write(Abandoned(n=number, at=writer.now))
            raise
        return result

    def _write_failure(self, writer: Writer, number: int, error: ABPError) -> None:
        writer.write(Failed(n=number, at=writer.now, error=record_error(error, self._scrubber)))

    @contextmanager
    def _skip_unrecordable(self, writer: Writer, number: int | None = None) -> Iterator[None]:
        """Log values that JSON cannot hold, as the failure of operation ``number``, and let the conversation go on."""
        try:
            with parser_limits():
                yield
        except (TypeError, ValueError) as error:
            failure = NotRecorded(f"the outcome could not be recorded, since it is not JSON: {error}")
            logger.warning("%s", failure.message)
            if number is not None:
                self._write_failure(writer, number, failure)

    def _record_state(self, writer: Writer) -> None:
        """Write the address and the features of the transport if they have changed: any operation may do that."""
        self._follow()
        url = None if self.url is None else self._scrubber.redact_text(self.url)
        state = {"url": url, **dataclasses.asdict(self.features)}
        if state != self._state:
            self._state = state
            writer.write(EventEntry(at=writer.now, type=STATE, payload=state))

    async def _reply_fields(self, reply: Message) -> Fields:
        packer = self._packer
        payload, leaves = await packer.pack(reply.payload)
        fields: dict[str, object] = {
            "type": reply.type,
            "payload": payload,
            "leaves": leaves,
            "outputs": [await packer.pack_content(output) for output in reply.outputs],
            "effects": [self._record_effect(effect) for effect in reply.effects],
            "warnings": [self._scrubber.redact_text(warning) for warning in reply.warnings],
        }
        if reply.server_call is not None:
            fields["shown"], fields["shown_leaves"] = await packer.pack(dataclasses.asdict(reply.server_call))
        return fields

    def _record_effect(self, effect: Effect) -> RecordedEffect:
        detail = self._scrubber.redact_tree(dict(effect.detail))
        assert isinstance(detail, dict)
        return RecordedEffect(kind=effect.kind, call=effect.call, detail=detail)


def _map_os_errors() -> AbstractContextManager[None]:
    return map_os_errors("copy a download for the recording", temp_folder(), other="name another one with TMPDIR")


def _has_same_texts(result: Mapping[str, object], fields: Mapping[str, Any]) -> bool:
    """Return whether the texts of a resource were recorded as they were read. A long text is recorded as a file, and
    compared by its hash."""
    read_contents = result.get("contents")
    recorded_contents = fields["payload"].get("contents")
    if not isinstance(read_contents, list) or not isinstance(recorded_contents, list):
        return bool(read_contents == recorded_contents)

    file_hashes = {tuple(entry.path): entry.sha256 for entry in fields["leaves"]}
    for index, (read, recorded) in enumerate(zip(read_contents, recorded_contents, strict=True)):
        for key in {"text", "blob"} & read.keys():
            if read[key] == recorded[key]:
                continue
            if file_hashes.get(("contents", index, key)) != hash_content([str(read[key]).encode()]):
                return False
    return True
