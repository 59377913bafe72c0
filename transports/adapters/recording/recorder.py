"""A transport that records another one: everything that is asked of it and all that comes back, as it happens."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

from ...artifacts import Staged
from ...base import PageTools, PdfOptions, ScreenshotOptions, Transport
from ...binary import BinaryData, Download, Handle
from ...errors import ABPError, Disconnected, NotRecorded
from ...http import Discovery, Fetched
from ...protocol.messages import Effect, Message
from .content import Packer
from .entries import FORMAT, STATE, Abandoned, Answer, Ask, Effected, Failed, Happened, Header, Kind, problem_of
from .file import Recording, Writer
from .tee import Copied

__all__ = ["Recorder", "recording_of"]

logger = logging.getLogger("transports.recording")

T = TypeVar("T")

#: Fields of an Answer.
_Told: TypeAlias = Mapping[str, object]


Discover: TypeAlias = Callable[[], Awaitable[Discovery]]


def recording_of(transport: Transport, recording: Recording) -> Recorder:
    """``transport`` as it is, recorded; with its page's tools if it has any."""
    return (PageRecorder if isinstance(transport, PageTools) else Recorder)(transport, recording)


class Recorder(Transport):
    """Passes everything on to ``wrapped`` and writes it down. Opening raises :class:`~transports.errors.UsageError` if
    the file is there already and is no recording. :class:`~transports.errors.StoreError` may come from everything: a
    recording that misses something is none."""

    def __init__(self, wrapped: Transport, recording: Recording) -> None:
        self.wrapped = wrapped
        self.name = wrapped.name
        self.features = wrapped.features
        self._recording = recording
        self._scrubber = recording.scrubber()
        self._numbers = itertools.count()
        self._writer: Writer | None = None
        self._packer: Packer | None = None
        self._state: object = None
        self._discovers = False

    @property
    def url(self) -> str | None:
        return self.wrapped.url

    async def open(self) -> None:
        header = Header(
            abp_recording=FORMAT,
            transport=self.name,
            tools=isinstance(self.wrapped, PageTools),
            discovers=self._discovers,
            fields=[*self._recording.fields],
            patterns=[*self._recording.patterns],
        )
        self._writer = writer = Writer(Path(self._recording.path), header)
        self._packer = Packer(writer.keep, self._scrubber)
        await self._recorded("open", self.wrapped.open)

    async def aclose(self) -> None:
        if self._writer is None:
            await self.wrapped.aclose()
            return
        try:
            await self._recorded("close", self.wrapped.aclose)
        finally:
            self._writer.close()

    async def request(self, message: Message, *, timeout: float) -> Message:
        return await self._recorded(
            "request",
            lambda: self.wrapped.request(message, timeout=timeout),
            self._reply,
            type=message.type,
            id=message.id,
            payload=message.payload,
        )

    async def notify(self, message: Message) -> None:
        await self._recorded(
            "notify",
            lambda: self.wrapped.notify(message),
            type=message.type,
            id=message.id,
            payload=message.payload,
        )

    async def events(self) -> AsyncIterator[Message]:
        async for message in self.wrapped.events():
            if (writer := self._writer) is not None:
                payload = message.payload
                happened = Happened(at=writer.now, type=message.type, id=message.id)
                if isinstance(payload, Effect):
                    change: dict[str, object] = {"effect": self._effect(payload)}
                else:
                    change = {"payload": self._scrubber.tree(payload)}
                with self._anyway(lambda _: None):
                    writer.write(happened.model_copy(update=change))
            yield message

    def discovering(self, discover: Discover) -> Discover:
        """``discover``, with what it finds recorded. To be made before the transport is opened, and used after."""
        self._discovers = True

        async def told(found: Discovery) -> _Told:
            return {
                "payload": self._scrubber.tree(
                    {
                        "page_url": found.page_url,
                        "manifest_url": found.manifest_url,
                        "title": found.title,
                        "manifest": found.manifest and found.manifest.model_dump(by_alias=True),
                        "warnings": [*found.warnings],
                        "reason": found.reason and problem_of(found.reason, self._scrubber).model_dump(),
                    }
                )
            }

        return lambda: self._recorded("discover", discover, told)

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        async def told(_: None) -> _Told:
            return {"leaves": [await self._opened()[1].file(path)]}

        await self._recorded(
            "save", lambda: self.wrapped.save(handle, path, timeout=timeout), told, payload={"handle": handle.id}
        )

    async def release(self, handle: Handle) -> None:
        await self.wrapped.release(handle)

    async def cookies(self, url: str) -> Mapping[str, str]:
        return await self.wrapped.cookies(url)

    async def fetch_download(
        self, reference: Download, staged: Staged, fetch: Callable[[Staged], Awaitable[Fetched]]
    ) -> Fetched:
        """A download of the session's, with what came of it (:class:`~transports.http.Downloads`)."""
        with tempfile.TemporaryDirectory(prefix="abp-recording-") as folder:
            copy = Copied(staged, Path(folder) / "download")

            async def told(fetched: Fetched) -> _Told:
                return {"payload": dataclasses.asdict(fetched), "leaves": [await self._opened()[1].file(copy.copy)]}

            return await self._recorded("download", lambda: fetch(copy), told, payload={"url": reference.url})

    # --- writing ------------------------------------------------------------------------------------------------------

    def _opened(self) -> tuple[Writer, Packer]:
        if self._writer is None or self._packer is None:
            raise Disconnected("the transport is not open; use it inside `async with`")
        return self._writer, self._packer

    async def _recorded(
        self,
        kind: Kind,
        work: Callable[[], Awaitable[T]],
        told: Callable[[T], Awaitable[_Told]] | None = None,
        *,
        type: str = "",
        id: str | None = None,
        payload: object = None,
    ) -> T:
        """Write down what is asked, do it, and write down what comes of it, which ``told`` puts into fields of an
        :class:`~transports.adapters.recording.entries.Answer`."""
        writer, packer = self._opened()
        n = next(self._numbers)
        plain, leaves = await packer.packed(payload, given=True)
        writer.write(Ask(n=n, at=writer.now, kind=kind, type=type, id=id, payload=plain, leaves=leaves))
        try:
            result = await work()
            self._watch(writer)
            with self._anyway(
                lambda error: writer.write(Failed(n=n, at=writer.now, error=problem_of(error, self._scrubber)))
            ):
                fields = await told(result) if told else {}
                writer.write(Answer(n=n, at=writer.now).model_copy(update=fields))
        except ABPError as error:
            self._watch(writer)
            writer.write(Failed(n=n, at=writer.now, error=problem_of(error, self._scrubber)))
            raise
        except BaseException:
            writer.write(Abandoned(n=n, at=writer.now))
            raise
        return result

    @contextmanager
    def _anyway(self, instead: Callable[[NotRecorded], None]) -> Iterator[None]:
        """What is no JSON cannot be recorded, and must not break the conversation."""
        try:
            yield
        except (TypeError, ValueError, RecursionError) as error:
            failure = NotRecorded(f"what came of this could not be recorded, since it is no JSON: {error}")
            logger.warning("%s", failure.message)
            instead(failure)

    def _watch(self, writer: Writer) -> None:
        """The page's address and the features may be others after each request."""
        self.features = features = self.wrapped.features
        url = None if self.url is None else self._scrubber.text(self.url)
        state = {"url": url, **dataclasses.asdict(features)}
        if state != self._state:
            self._state = state
            writer.write(Happened(at=writer.now, type=STATE, payload=state))

    async def _reply(self, reply: Message) -> _Told:
        _, packer = self._opened()
        payload, leaves = await packer.packed(reply.payload)
        return {
            "type": reply.type,
            "payload": payload,
            "leaves": leaves,
            "outputs": [await packer.leaf(output) for output in reply.outputs],
            "effects": [self._effect(effect) for effect in reply.effects],
            "warnings": [self._scrubber.text(warning) for warning in reply.warnings],
        }

    def _effect(self, effect: Effect) -> Effected:
        detail = self._scrubber.tree(dict(effect.detail))
        assert isinstance(detail, dict)
        return Effected(kind=effect.kind, call=effect.call, detail=detail)


class PageRecorder(Recorder):
    """A recorder of a transport with a page's tools."""

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float) -> BinaryData:
        tools = self._tools()
        asked = {"html": html, "options": dict(options)}
        return await self._recorded(
            "render_to_pdf", lambda: tools.render_to_pdf(html, options, timeout=timeout), self._made, payload=asked
        )

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
        tools = self._tools()
        asked = {"options": dict(options)}
        return await self._recorded(
            "screenshot", lambda: tools.screenshot(options, timeout=timeout), self._made, payload=asked
        )

    def _tools(self) -> PageTools:
        assert isinstance(self.wrapped, PageTools)
        return self.wrapped

    async def _made(self, binary: BinaryData) -> _Told:
        return {"leaves": [await self._opened()[1].leaf(binary)]}
