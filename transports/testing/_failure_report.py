"""Report of a failed test: recordings of its sessions, its views, problems of its pages, a trace, its artifacts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from .._internal.redaction import Redactor
from ..base import Transport
from ..playwright._diagnosis import read_problems
from ..playwright._evidence import HasPage, page_of
from ..protocol._plain_text import plain_line
from ..sync._bridge import SHARED

if TYPE_CHECKING:
    from ..session._views import View

#: Runs work in the event loop of a blocking session.
Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


class _WatchedPage(NamedTuple):
    page: HasPage
    run: Run


class _WatchedView(NamedTuple):
    """Without ``run`` the view is written by the test's own event loop."""

    view: View
    run: Run | None


class FailureReport:
    """Report of one test, written only if the test fails. During the test, recordings go to the folder ``recordings``.
    ``folder`` is created with its first file. ``artifacts`` is the folder of the test's store."""

    def __init__(self, folder: Path, *, artifacts: Path, recordings: Path) -> None:
        self._folder = folder
        self._artifacts = artifacts
        self._recordings = recordings
        self._sessions: list[Path] = []
        self._views: list[_WatchedView] = []
        self._traced: list[HasPage] = []
        self._page: _WatchedPage | None = None

    def new_recording(self) -> Path:
        self._sessions.append(self._recordings / _numbered_name("session.jsonl", len(self._sessions) + 1))
        return self._sessions[-1]

    def write(self) -> str:
        """Return a summary of the files. Without anything to write no folder is created. The sessions may still be
        open: a recording is valid up to its last whole line."""
        summary = "nothing was kept: no app had answered yet"
        try:
            written = self._write_files()
        except OSError as error:
            # pytest would end the whole run.
            summary = f"not kept in {self._folder}: {error.strerror or error}; name another folder with --abp-output"
        else:
            if written:
                summary = f"kept in {self._folder}: {', '.join(written)}"
        return "\n".join([*self._view_notes(), summary])

    def _write_files(self) -> list[str]:
        written: list[str] = []
        for recording in self._sessions:
            written += self._keep_recording(recording)
        written += self._write_page()
        written += self._write_views()
        written += self._write_traces()
        if self._copy_artifacts():
            written.append("artifacts")
        return written

    def _view_notes(self) -> list[str]:
        redactor = Redactor()
        lines: list[str] = []
        for watched in self._views:
            notes = (*watched.view.violations, *watched.view.warnings)[:5]
            lines += [f"view: {plain_line(str(redactor.redact_tree(note)))}" for note in notes]
        self._views.clear()
        return lines

    def _write_page(self) -> list[str]:
        watched = self._page
        self._page = None
        if watched is not None:
            # The page itself may have failed.
            with contextlib.suppress(Exception):
                watched.run(self._write_problems(watched.page))
        if not (self._folder / "page.txt").is_file():
            return []
        return ["page.txt (problems of the page)"]

    def _write_views(self) -> list[str]:
        for number, watched in enumerate(self._views, 1):
            if watched.run is not None:
                # The page of the view may be closed.
                with contextlib.suppress(Exception):
                    watched.run(self._write_view(watched.view, number))
        return sorted(file.name for file in self._folder.glob("view*.*"))

    def _write_traces(self) -> list[str]:
        """Return the names of all traces, each with the command that shows it."""
        traced = self._traced
        self._traced = []
        for number, page in enumerate(traced, 1):
            SHARED.run(_stop_trace(page, self._folder / _numbered_name("trace.zip", number)))
        return [
            f"{trace.name} (see it with: {shlex.join(('playwright', 'show-trace', str(trace)))})"
            for trace in sorted(self._folder.glob("trace*.zip"))
        ]

    def _keep_recording(self, recording: Path) -> list[str]:
        """Return the names of the recording and its log; none for an empty recording."""
        if not recording.is_file():
            return []
        has_only_header = recording.read_bytes().count(b"\n") < 2
        if has_only_header:
            return []

        self._folder.mkdir(parents=True, exist_ok=True)
        copy = self._folder / recording.name
        shutil.copy2(recording, copy)
        content = recording.with_name(f"{recording.name}.d")
        if content.is_dir():
            shutil.copytree(content, self._folder / content.name, dirs_exist_ok=True)
        log = copy.with_suffix(".txt")
        write_log(copy, log)
        return [copy.name, log.name]

    def _copy_artifacts(self) -> bool:
        if not self._artifacts.is_dir():
            return False
        files = [file for file in self._artifacts.iterdir() if file.is_file() and not file.name.startswith(".")]
        for file in files:
            (self._folder / "artifacts").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self._folder / "artifacts" / file.name)
        return bool(files)

    def watch_page(self, transport: Transport, run: Run) -> None:
        """Register the page for :meth:`write` to report its problems. ``run`` runs work in the session's loop."""
        page = page_of(transport)
        if page is not None:
            self._page = _WatchedPage(page, run)

    async def _write_problems(self, transport: HasPage) -> None:
        if transport.page is None:
            return
        problems = await read_problems(transport.page)
        lines = problems.lines()
        if lines:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "page.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def watch_view(self, view: View, run: Run) -> None:
        """Register a view, before it is opened. ``run`` runs work in its loop."""
        self._views.append(_WatchedView(view, run))

    @contextlib.asynccontextmanager
    async def keeping_view(self, view: View) -> AsyncIterator[View]:
        """Report a view in the test's own event loop if it does not open, or if an exception leaves the block, except
        that of ``pytest.skip``."""
        self._views.append(_WatchedView(view, None))
        number = len(self._views)
        async with contextlib.AsyncExitStack() as stack:
            try:
                yield await stack.enter_async_context(view)
            except BaseException as error:
                if not isinstance(error, pytest.skip.Exception):
                    await self._write_view(view, number)
                raise

    async def _write_view(self, view: View, number: int) -> None:
        """Write what a view asked of its host to ``view.json``, without secrets, and its picture to ``view.png``."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # The view may not have been shown, or its page may be closed. The error of the test matters more.
        with contextlib.suppress(Exception):
            file = self._folder / _numbered_name("view.json", number)
            description = await asyncio.to_thread(_view_as_json, view)
            text = json.dumps(description, ensure_ascii=False, indent=2, default=str)
            file.write_text(f"{text}\n", encoding="utf-8")
            picture = self._folder / _numbered_name("view.png", number)
            await view.frame.page.screenshot(path=picture, timeout=5000)

    def start_trace(self, transport: Transport) -> None:
        """The trace ends with :meth:`write`, which keeps it, or with :meth:`discard_trace`."""
        page = page_of(transport)
        if page is not None:
            SHARED.run(_start_trace(page))
            self._traced.append(page)

    def discard_trace(self) -> None:
        traced = self._traced
        self._traced = []
        for page in traced:
            SHARED.run(_stop_trace(page, None))

    @contextlib.asynccontextmanager
    async def tracing(self, transport: Transport) -> AsyncIterator[None]:
        """Trace a session in the test's own event loop. The trace and the problems of the page are kept if an exception
        leaves the block, except that of ``pytest.skip``."""
        page = page_of(transport)
        if page is None:
            yield
            return
        await _start_trace(page)
        path: Path | None = None
        try:
            yield
        except BaseException as error:
            if not isinstance(error, pytest.skip.Exception):
                path = self._folder / "trace.zip"
                await self._write_problems(page)
            raise
        finally:
            await _stop_trace(page, path)


def _numbered_name(name: str, number: int) -> str:
    if number == 1:
        return name
    stem, ending = name.split(".")
    return f"{stem}-{number}.{ending}"


def _view_as_json(view: View) -> object:
    return Redactor().redact_tree(
        {
            "capabilities": sorted(view.capabilities),
            "requests": [dataclasses.asdict(request) for request in view.requests],
            "model_context": view.model_context,
            "violations": [*view.violations],
            "warnings": [*view.warnings],
            "files": [file.as_dict() for file in view.files],
        }
    )


def write_log(recording: Path, log: Path) -> None:
    """A line has the seconds since the beginning, the direction, the kind, and the first 1,000 characters as JSON.
    Content is named, not shown. An incomplete last line is left out."""
    # After the header, up to the last whole line.
    lines = recording.read_text(encoding="utf-8").split("\n")[1:-1]
    log.write_text("".join(f"{_log_line(json.loads(line))}\n" for line in lines), encoding="utf-8")


def _log_line(entry: dict[str, Any]) -> str:
    action = entry["does"]
    direction = "→" if action == "ask" else "←"
    names = " ".join(str(entry[key]) for key in ("n", "kind", "type") if key in entry)

    named = ("does", "n", "kind", "type", "at")
    details = json.dumps({key: value for key, value in entry.items() if key not in named}, ensure_ascii=False)
    max_chars = 1000
    if len(details) > max_chars:
        details = f"{details[:max_chars]}… ({len(details)} characters)"
    return f"{entry.get('at', 0.0):9.3f} {direction} {action} {names} {details}"


async def _start_trace(transport: HasPage) -> None:
    from playwright.async_api import Error

    if transport.page is not None:
        with contextlib.suppress(Error):  # a shared context may be traced already
            await transport.page.context.tracing.start(screenshots=True, snapshots=True)


async def _stop_trace(transport: HasPage, path: Path | None) -> None:
    from playwright.async_api import Error

    if transport.page is not None:
        with contextlib.suppress(Error):  # the browser itself may have died
            await transport.page.context.tracing.stop(path=path)
