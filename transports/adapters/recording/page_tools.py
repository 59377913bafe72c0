"""Recordings of transports with a page's tools, and the choice between those and the plain ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...base import Fetch, PageTools, PdfOptions, ScreenshotOptions, Transport
from ...binary import BinaryData
from .content import unpack_content
from .entries import Kind
from .file import Recording, read_header
from .recorder import Fields, Recorder
from .replay import ReplayTransport

__all__ = ["PageRecorder", "PageReplay", "record_transport", "replay_transport"]


def record_transport(transport: Transport, recording: Recording) -> Recorder:
    """Return a transport that behaves as ``transport`` and is recorded, with its page's tools if it has any."""
    return (PageRecorder if isinstance(transport, PageTools) else Recorder)(transport, recording)


def replay_transport(path: str | Path) -> ReplayTransport:
    """Return a transport that plays the recording ``path``, with a page's tools if the recorded transport had them."""
    header = read_header(Path(path))
    return (PageReplay if header is not None and header.tools else ReplayTransport)(path)


class PageRecorder(Recorder):
    """A recorder of a transport with a page's tools."""

    async def render_to_pdf(self, html: str, options: PdfOptions, *, timeout: float, fetch: Fetch | None) -> BinaryData:
        """Pass the call on, and record the PDF."""
        tools = self._tools()
        arguments = {"html": html, "options": dict(options)}
        return await self._record(
            "render_to_pdf",
            lambda: tools.render_to_pdf(html, options, timeout=timeout, fetch=fetch),
            self._binary_fields,
            payload=arguments,
        )

    async def screenshot(self, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
        """Pass the call on, and record the picture."""
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
    """A replay of a transport with a page's tools."""

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
        raise self._reader.error(line, "the content is not there", "undo what was edited, or record again")
