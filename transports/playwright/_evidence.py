"""Recording of the evidence of calls: started before a call, written, redacted and returned as files after it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
import zipfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from .._internal.masking import KNOWN_SECRETS, KnownSecrets
from .._internal.redaction import EvidenceRedactor
from .._internal.tasks import in_thread
from ..base import Transport
from ..errors import first_line
from ..protocol._strict_json import parser_limits
from ._evidence_kinds import MAX_CHARS, EvidenceFile, EvidenceKind, TimedLines
from ._evidence_secrets import clean_body, clean_har, clean_trace
from ._find import no_ffmpeg
from ._process import RunFolder, listener

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Error, Page, Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of recordings. Times are in seconds."""

    #: For one step. A browser that hangs loses its evidence, but delays the call by no more than this time.
    step: float = 10.0
    #: For the screenshot at the end; a page that hangs has none.
    picture: float = 5.0
    #: Largest HAR in bytes. A larger one is not searched for secrets, and so not kept.
    max_har: int = 16 << 20


LIMITS = Limits()
#: Kinds that the browser can record for one call at a time only.
EXCLUSIVE: frozenset[EvidenceKind] = frozenset(("trace", "video", "har"))
#: MIME types and file name extensions.
_FORMATS: Mapping[EvidenceKind, tuple[str, str]] = {
    "trace": ("application/zip", "trace.zip"),
    "video": ("video/webm", "webm"),
    "har": ("application/json", "har"),
    "console": ("text/plain", "console.txt"),
    "screenshot": ("image/png", "png"),
}


class ConsoleLog:
    """Lines of the page's console. ``redactor`` remembers the secrets in the page's requests."""

    def __init__(self, page: Page, redactor: EvidenceRedactor) -> None:
        self._page = page
        self._redactor = redactor
        self.lines = TimedLines("the page said nothing")
        self._listeners: list[tuple[Any, Any]] = []

    def start(self) -> None:
        self._listeners = [
            ("console", listener(self._on_console)),
            ("pageerror", listener(self._on_error)),
            ("request", listener(self._on_request)),
        ]
        for event, handle in self._listeners:
            self._page.on(event, handle)

    def stop(self) -> None:
        while self._listeners:
            self._page.remove_listener(*self._listeners.pop())

    def _on_console(self, message: ConsoleMessage) -> None:
        location = message.location
        tail = ""
        if location.get("url"):
            tail = f" ({location['url']}:{location['lineNumber'] + 1})"
        self.lines.add(message.text or " ", head=f"console.{message.type}: ", tail=tail)

    def _on_error(self, error: Error) -> None:
        self.lines.add(f"page error: {error.stack or error.message}")

    def _on_request(self, request: Request) -> None:
        self._redactor.redact_tree(request.url)
        self._redactor.redact_tree(dict(request.headers))
        mime_type = request.headers.get("content-type", "").lower()
        # A binary body cannot be decoded.
        with contextlib.suppress(UnicodeDecodeError):
            body = request.post_data or ""
            clean_body(body[:MAX_CHARS], mime_type, self._redactor)


class CallEvidence:
    """Recording of a call. ``notes`` name what is missing, with reasons. No method raises an error of the browser."""

    _page: Page
    _console: ConsoleLog

    def __init__(self, owner: PageEvidence, folder: Path, title: str, params: object) -> None:
        self.notes: list[str] = []
        self._owner = owner
        self._limits = owner.limits
        self._folder = folder
        self._running: set[EvidenceKind] = set()
        self._kinds: frozenset[EvidenceKind] = frozenset()
        self._redactor = EvidenceRedactor(owner.known_secrets)
        self._title = title
        self._params = params

    async def start(self, page: Page, kinds: frozenset[EvidenceKind]) -> None:
        """Begin to record. Until the end, no other call can record kinds in :data:`EXCLUSIVE`."""
        try:
            self._folder.mkdir(mode=0o700)
        except OSError as error:
            # Missing evidence must not fail the call.
            self.notes.append(f"nothing can be recorded: {error.strerror or error}")
            return

        self._page = page
        self._console = ConsoleLog(page, self._redactor)
        self._kinds = kinds
        self._owner.busy |= EXCLUSIVE & kinds
        try:
            await self._start_recordings()
        except BaseException:
            self._owner.busy -= kinds
            raise

    async def _start_recordings(self) -> None:
        if "console" in self._kinds:
            self._console.start()

        tracing = self._page.context.tracing
        starts: dict[EvidenceKind, Callable[[], Awaitable[object]]] = {
            "trace": self._start_trace,
            "har": lambda: tracing.start_har(self._file_path("har", raw=True), content="embed"),
            "video": lambda: self._page.screencast.start(path=self._file_path("video")),
        }
        kinds = [kind for kind in starts if kind in self._kinds]
        started = await asyncio.gather(*(self._try_step(kind, starts[kind]()) for kind in kinds))
        self._running = {kind for kind, is_running in zip(kinds, started, strict=True) if is_running}

    async def _start_trace(self) -> None:
        # Each call gets a separate trace: chunks of one trace would share a log of requests, which only grows.
        tracing = self._page.context.tracing
        await tracing.start(screenshots=True, snapshots=True, title=self._title)
        # Show the call as a group, as it is not an action of Playwright's. A trace without the group is of use, too.
        with contextlib.suppress(Exception):
            await tracing.group(self._title)

    async def end(self, keep: Collection[EvidenceKind]) -> list[EvidenceFile]:
        """Stop recording, and return the files of the kinds in ``keep``, redacted. They exist until :meth:`discard`.

        After a cancellation, this may be called again to stop the rest."""
        if not self._kinds:
            return []
        try:
            return await self._end_recordings(keep)
        finally:
            self._owner.busy -= self._kinds

    async def _end_recordings(self, keep: Collection[EvidenceKind]) -> list[EvidenceFile]:
        self._console.stop()
        recorded_kinds: set[EvidenceKind] = set()
        if "screenshot" in keep and await self._try_step("screenshot", self._take_picture()):
            recorded_kinds.add("screenshot")

        tracing = self._page.context.tracing
        if await self._stop_recording("video", self._page.screencast.stop):
            recorded_kinds.add("video")
        if await self._stop_recording("har", tracing.stop_har):
            recorded_kinds.add("har")
        # A trace without a path is thrown away.
        path = self._file_path("trace", raw=True) if "trace" in keep else None
        if await self._stop_recording("trace", lambda: tracing.stop(path=path)):
            recorded_kinds.add("trace")
        if "console" in self._kinds:
            recorded_kinds.add("console")

        recorded_kinds &= set(keep)
        if not recorded_kinds:
            return []
        await self._remember_fields()
        return await in_thread(self._redact_files, recorded_kinds)

    async def _stop_recording(self, kind: EvidenceKind, stop: Callable[[], Awaitable[object]]) -> bool:
        if kind not in self._running:
            return False
        self._running.discard(kind)
        return await self._try_step(kind, stop())

    async def _take_picture(self) -> None:
        timeout = self._limits.picture
        async with asyncio.timeout(timeout):
            await self._page.screenshot(path=self._file_path("screenshot"), timeout=timeout * 1000)

    async def _remember_fields(self) -> None:
        """Let the redactor remember the cookies and the passwords that are typed in the page."""
        fields = "[...document.querySelectorAll('input[type=password]')].slice(0, 50)"
        # Playwright may raise any error for a page that is gone, which has no fields.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._limits.picture):
                for cookie in await self._page.context.cookies():
                    self._redactor.remember(cookie["value"])
                for value in await self._page.evaluate(f"{fields}.map((field) => field.value.slice(0, 4096))"):
                    self._redactor.remember(str(value))

    async def _try_step(self, kind: EvidenceKind, work: Awaitable[object]) -> bool:
        """Do one step. Return whether it succeeded; a failure is noted."""
        from playwright.async_api import Error  # late: reports of tests import this module without Playwright

        try:
            async with asyncio.timeout(self._limits.step):
                await work
        except TimeoutError:
            self.notes.append(f"{kind}: the browser did not answer in time")
        except Error as error:
            reason = first_line(error)
            if kind == "video" and "ffmpeg" in reason:
                reason = no_ffmpeg()
            self.notes.append(f"{kind}: {reason}")
        except OSError as error:
            self.notes.append(f"{kind}: {error.strerror}")
        else:
            return True
        return False

    def _file_path(self, kind: EvidenceKind, *, raw: bool = False) -> Path:
        stem = "raw" if raw else "clean"
        return self._folder / f"{stem}.{_FORMATS[kind][1]}"

    def _redact_files(self, recorded: set[EvidenceKind]) -> list[EvidenceFile]:
        """Redact the recorded files, in a thread. This is done twice: the second redactor removes from every file what
        the first has removed from any."""
        self._redactor.redact_tree(self._params)
        self._redact_each(recorded, self._redactor)
        self._redact_each(recorded, self._redactor.with_values())
        return [
            EvidenceFile(kind, self._file_path(kind), mime_type, ending)
            for kind, (mime_type, ending) in _FORMATS.items()
            if kind in recorded
        ]

    def _redact_each(self, recorded: set[EvidenceKind], redactor: EvidenceRedactor) -> None:
        """Redact each file. A file that cannot be redacted is not kept."""
        redactions: Mapping[EvidenceKind, Callable[[EvidenceRedactor], None]] = {
            "trace": self._redact_trace,
            "har": self._redact_har,
            "console": self._redact_console,
        }
        for kind in [kind for kind in redactions if kind in recorded]:
            try:
                with parser_limits():
                    redactions[kind](redactor)
            except (ValueError, OSError, zipfile.BadZipFile) as error:
                recorded.discard(kind)
                self.notes.append(f"{kind}: it was not kept: {first_line(error)}")

    def _redact_trace(self, redactor: EvidenceRedactor) -> None:
        files = clean_trace(self._file_path("trace", raw=True), redactor)
        if redactor is self._redactor:
            # The first pass only remembers secrets. Writing its files, too, would take 1.2 times as long.
            for _ in files:
                pass
            return
        with zipfile.ZipFile(self._file_path("trace"), "w", zipfile.ZIP_DEFLATED) as out:
            for name, data in files:
                out.writestr(name, data)

    def _redact_har(self, redactor: EvidenceRedactor) -> None:
        path = self._file_path("har", raw=True)
        size = path.stat().st_size
        if size > self._limits.max_har:
            raise ValueError(f"it has {size:,} bytes, too many to search for secrets")
        self._file_path("har").write_bytes(clean_har(path.read_bytes(), redactor))

    def _redact_console(self, redactor: EvidenceRedactor) -> None:
        text = self._console.lines.text(redactor)
        self._file_path("console").write_text(text, encoding="utf-8", errors="replace")

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@runtime_checkable
class HasPage(Protocol):
    @property
    def page(self) -> Page | None:
        """The page of ``playwright.async_api``; ``None`` while it is not open."""


def page_of(transport: Transport) -> HasPage | None:
    """Return the transport with a page, perhaps below recorders and guards of secrets, or ``None``."""
    inner: object = transport
    while (wrapped := getattr(inner, "wrapped", None)) is not None:
        inner = wrapped
    if isinstance(inner, HasPage):
        return inner
    return None


class PageEvidence:
    """Recorder of evidence of calls in a page. It uses temporary files: close it at the end of the session.
    ``known_secrets`` are those of the session's user."""

    def __init__(
        self, source: HasPage, known_secrets: KnownSecrets = KNOWN_SECRETS, *, limits: Limits = LIMITS
    ) -> None:
        self.known_secrets = known_secrets
        self.limits = limits
        self._source = source
        self._stack = contextlib.ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="evidence-", dir=self._stack.enter_context(RunFolder())))
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._numbers = itertools.count()
        #: Kinds recorded now; those in EXCLUSIVE can be recorded for one call at a time.
        self.busy: set[EvidenceKind] = set()

    async def begin(self, kinds: Collection[EvidenceKind], title: str, params: object) -> CallEvidence:
        """Begin to record a call. Secrets in its parameters are redacted in all files."""
        evidence = CallEvidence(self, self._folder / str(next(self._numbers)), title, params)
        busy_kinds = self.busy & frozenset(kinds)
        evidence.notes = [f"{kind}: another call of this session was being recorded" for kind in sorted(busy_kinds)]
        page = self._source.page
        if page is None:
            evidence.notes.append("the page was not open when the call began")
        else:
            await evidence.start(page, frozenset(kinds) - busy_kinds)
        return evidence

    def close(self) -> None:
        self._stack.close()
