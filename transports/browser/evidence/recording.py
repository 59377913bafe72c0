"""The evidence of one call while it runs: what is started before it, and the files that are written after it."""

from __future__ import annotations

import asyncio
import contextlib
import zipfile
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import first_line
from ...protocol.secret_values import SecretValues
from ...protocol.secrets import KNOWN_SECRETS, KnownSecrets
from ...tasks import in_thread
from .console import ConsoleLog
from .ffmpeg import no_ffmpeg
from .har import clean_har, learn_har
from .kinds import EvidenceFile, EvidenceKind
from .trace_zip import clean_trace, learn_trace

if TYPE_CHECKING:
    from playwright.async_api import Page

T = TypeVar("T")

__all__ = ["EXCLUSIVE", "CallRecording"]

#: Kinds of which the browser can record one at a time.
EXCLUSIVE: frozenset[EvidenceKind] = frozenset(("trace", "video", "har"))
#: Seconds for one step: a browser that hangs costs its evidence, and the call no more time than that.
_STEP = 10.0
#: Seconds for the picture at the end; a page that spins has none.
_PICTURE = 5.0
#: Largest HAR in bytes that is looked through for secrets.
_MAX_HAR = 16 << 20
_TYPES = {"trace": "application/zip", "video": "video/webm", "har": "application/json", "console": "text/plain",
          "screenshot": "image/png"}  # fmt: skip
_ENDINGS = {"trace": "trace.zip", "video": "webm", "har": "har", "console": "console.txt", "screenshot": "png"}
#: What the fields for passwords hold now, to be removed from all that is kept.
_PASSWORDS = (
    "[...document.querySelectorAll('input[type=password]')].slice(0, 50).map((field) => field.value.slice(0, 4096))"
)


class CallRecording:
    """What is recorded of one call in ``page``. ``notes`` say what could not be had, and why.

    ``folder`` is for files on their way. Nothing raises an error of the browser.
    """

    def __init__(
        self,
        page: Page,
        kinds: Collection[EvidenceKind],
        folder: Path,
        *,
        title: str,
        params: object,
        known: KnownSecrets = KNOWN_SECRETS,
    ) -> None:
        self.notes: list[str] = []
        self._page = page
        self.folder = folder
        self.running: set[EvidenceKind] = set()
        self._wanted = frozenset(kinds)
        self._secrets = SecretValues(known)
        self._title = title
        self._params = params
        self._console = ConsoleLog(page, self._secrets)

    async def start(self) -> None:
        """Start what must run beside the call."""
        self.folder.mkdir(mode=0o700)
        if "console" in self._wanted:
            self._console.start()
        tracing = self._page.context.tracing
        starts: dict[EvidenceKind, Callable[[], Awaitable[object]]] = {
            "trace": self._start_trace,
            "har": lambda: tracing.start_har(self._path("har", raw=True), content="embed"),
            "video": lambda: self._page.screencast.start(path=self._path("video")),
        }
        wanted = [kind for kind in starts if kind in self._wanted]
        begun = await asyncio.gather(*(self._step(kind, starts[kind]()) for kind in wanted))
        self.running = {kind for kind, started in zip(wanted, begun, strict=True) if started}

    async def _start_trace(self) -> None:
        # A trace of its own for each call: chunks of one trace share its log of requests, which only grows.
        tracing = self._page.context.tracing
        await tracing.start(screenshots=True, snapshots=True, title=self._title)
        with contextlib.suppress(Exception):  # the call itself is no action of Playwright's, so it gets a name in it
            await tracing.group(self._title)

    async def end(self, keep: Collection[EvidenceKind]) -> list[EvidenceFile]:
        """Stop everything, and return the files of the kinds to ``keep``, without the secrets that were found.

        If it was cancelled, it may be called again to stop the rest."""
        self._console.stop()
        made: set[EvidenceKind] = set()
        if "screenshot" in keep and await self._step("screenshot", self._take_picture()):
            made.add("screenshot")
        tracing = self._page.context.tracing
        if await self._stopped("video", self._page.screencast.stop):
            made.add("video")
        if await self._stopped("har", tracing.stop_har):
            made.add("har")
        path = self._path("trace", raw=True) if "trace" in keep else None
        if await self._stopped("trace", lambda: tracing.stop(path=path)):
            made.add("trace")
        if "console" in self._wanted:
            made.add("console")
        made &= set(keep)
        if not made:
            return []
        await self._learn_fields()
        return await in_thread(self._clean, made)

    async def _stopped(self, kind: EvidenceKind, stop: Callable[[], Awaitable[object]]) -> bool:
        """Stop a kind that runs, once. Whether it ran and could be stopped."""
        if kind not in self.running:
            return False
        self.running.discard(kind)
        return await self._step(kind, stop())

    async def _take_picture(self) -> None:
        async with asyncio.timeout(_PICTURE):
            await self._page.screenshot(path=self._path("screenshot"), timeout=_PICTURE * 1000)

    async def _learn_fields(self) -> None:
        with contextlib.suppress(Exception):  # a page that is gone has no fields
            async with asyncio.timeout(_PICTURE):
                for cookie in await self._page.context.cookies():
                    self._secrets.learn_value(cookie["value"])
                for value in await self._page.evaluate(_PASSWORDS):
                    self._secrets.learn_value(str(value))

    async def _step(self, kind: EvidenceKind, work: Awaitable[object]) -> bool:
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(_STEP):
                await work
        except TimeoutError:
            self.notes.append(f"{kind}: the browser did not answer in time")
        except Error as error:
            reason = first_line(error)
            missing = kind == "video" and "ffmpeg" in reason
            self.notes.append(f"{kind}: {no_ffmpeg() if missing else reason}")
        except OSError as error:
            self.notes.append(f"{kind}: {error.strerror}")
        else:
            return True
        return False

    def _path(self, kind: EvidenceKind, *, raw: bool = False) -> Path:
        return self.folder / f"{'raw' if raw else 'clean'}.{_ENDINGS[kind]}"

    def _clean(self, made: set[EvidenceKind]) -> list[EvidenceFile]:
        """Redact what was recorded, in a thread: first all secrets are learned, from whichever file they are in."""
        self._secrets.learn(self._params)
        har = None
        if "trace" in made:
            self._checked("trace", made, lambda: learn_trace(self._path("trace", raw=True), self._secrets))
        if "har" in made:
            har = self._checked("har", made, self._read_har)
        if "trace" in made:
            raw, clean = self._path("trace", raw=True), self._path("trace")
            self._checked("trace", made, lambda: clean_trace(raw, clean, self._secrets))
        if har is not None:
            self._checked("har", made, lambda: clean_har(har, self._path("har"), self._secrets))
        if "console" in made:
            self._checked("console", made, self._write_console)
        return [EvidenceFile(kind, self._path(kind), _TYPES[kind], _ENDINGS[kind]) for kind in _TYPES if kind in made]

    def _read_har(self) -> dict[str, object]:
        path = self._path("har", raw=True)
        if path.stat().st_size > _MAX_HAR:
            raise ValueError(f"it has {path.stat().st_size:,} bytes, more than can be looked through for secrets")
        return learn_har(path, self._secrets)

    def _write_console(self) -> None:
        self._path("console").write_text(self._console.text(), encoding="utf-8", errors="replace")

    def _checked(self, kind: EvidenceKind, made: set[EvidenceKind], work: Callable[[], T]) -> T | None:
        """Do a step of the redaction. A file that cannot be redacted is not kept."""
        try:
            return work()
        except (ValueError, OSError, RecursionError, zipfile.BadZipFile) as error:
            made.discard(kind)
            self.notes.append(f"{kind}: it was not kept: {first_line(error)}")
            return None
