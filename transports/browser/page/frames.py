"""The tools in the frames of a page: whose they are, what they are called here, and which document a call is for.

All of that is decided here, not in the page: a page and the documents in its frames, which may be of anybody, know of
each other's tools nothing through us. Each document with tools has an agent of its own for its own tools, and what it
says counts for itself alone. A document that floods or never ends its changes is slowed, then left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import TransportError
from ...protocol.messages import Message
from ...protocol.strict_json import PARSED_ON_LOOP
from ...tasks import cancel_and_wait, spawn
from .agent import FrameAgent, PageAgent
from .channel import OPAQUE, FrameDocument
from .frame_sessions import Rate
from .received import Clipboard, Effect, FileChooser, Flood, Tools, parse_reply

if TYPE_CHECKING:
    from playwright.async_api import Frame

__all__ = ["MARK", "FrameTools", "ToolFrame", "own_tools"]

logger = logging.getLogger("transports.browser")

#: Stands between the name of a tool and the frame that it is in. Names of tools have none.
MARK = "@"
#: Frames with tools of one page, tools of one frame, and characters of a tool's name.
_MAX_FRAMES, _MAX_TOOLS, _MAX_NAME = 64, 500, 128
#: Calls that are known after their end.
_MAX_SENT = 1000
#: Events of a frame in a second, and those with which it is left out. Its agent sends fewer (agent.js).
_MAX_EVENTS, _FLOOD = 300, 3000
#: Seconds for a frame to say what its tools are, and for the tools of all that are asked while the page is opened.
_LIST_TIMEOUT, _SETTLE_TIMEOUT = 5.0, 1.0
#: Seconds between two lists of a frame that changes all the time: the first, the longest, and what counts as quiet.
_FIRST_PAUSE, _LONGEST_PAUSE, _QUIET = 0.05, 5.0, 10.0
#: What a frame of the page's own origin may be called. Never like another origin, which has a port.
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_PORTS = {"http": 80, "https": 443}


@dataclass(eq=False, slots=True)
class ToolFrame:
    """A document in a frame, with its tools: the name that each has here → its own name, and how it is listed."""

    document: FrameDocument
    agent: FrameAgent
    number: int
    label: str = ""
    tools: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)
    calls: dict[str, object] = field(default_factory=dict)  # ids of calls under way, oldest first
    rate: Rate = field(default_factory=lambda: Rate(_MAX_EVENTS))
    listed: asyncio.Event = field(default_factory=asyncio.Event)  # whether it has been asked for its tools once
    stale: bool = False
    reading: bool = False
    pause: float = _FIRST_PAUSE
    changed_at: float = 0.0
    warned: bool = False

    @property
    def origin(self) -> str:
        """The document's origin, as the browser says; ``"null"`` if it shares it with no other."""
        return self.document.origin

    @property
    def url(self) -> str:
        """The document's address."""
        return self.document.url

    @property
    def holder(self) -> str:
        """The beginning of the handles of content that this document holds."""
        return f"frame:{self.number}/"

    @property
    def frame(self) -> Frame | None:
        """Playwright's frame of the document, ``None`` if it is not known."""
        frames = self.agent.page.frames[1:]
        return self.document.frame or next((frame for frame in frames if frame.url == self.url), None)


class FrameTools:
    """The tools in the frames of ``agent``'s page. It is a :class:`~.channel.FrameWatcher`.

    ``on_change(removed)`` is called when tools have come, gone or changed, with the names of those that went.
    ``on_effect(frame, kind, payload)`` gets what a frame does beside answering, with the id of its own call, if it has
    one under way.
    """

    def __init__(
        self,
        agent: PageAgent,
        on_change: Callable[[list[str]], None],
        on_effect: Callable[[ToolFrame, str, Effect], None],
    ) -> None:
        self._agent = agent
        self._on_change = on_change
        self._on_effect = on_effect
        self._frames: dict[FrameDocument, ToolFrame] = {}
        self._numbers = count(1)
        self._names: dict[str, tuple[ToolFrame, str]] = {}
        self._sent: dict[
            str, ToolFrame
        ] = {}  # call → where it went, also when it has ended: a cancellation comes later
        self._gone: dict[str, None] = {}  # names whose document has gone
        self._appeared = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._used = True

    # --- documents ----------------------------------------------------------------------------------------------------

    def came(self, document: FrameDocument) -> None:
        """Take a document in a frame; most have no tools."""
        self._frames[document] = ToolFrame(document, FrameAgent(self._agent, document.channel), next(self._numbers))

    def left(self, document: FrameDocument) -> None:
        """Forget a document and its tools. Calls of them that are under way end."""
        if frame := self._frames.pop(document, None):
            frame.agent.leave()
            frame.listed.set()
            self._replace(frame, {})

    def emitted(self, document: FrameDocument, text: object) -> None:
        """Take an event of a document; what is too much is dropped before it is read."""
        frame = self._frames.get(document)
        if frame is None:
            return
        if frame.rate.is_over():
            if frame.rate.count > _FLOOD:
                self._leave_out(frame)
            else:
                self._warn(frame)
        else:
            self._agent.deliver(text, to=partial(self._take, frame))

    def _warn(self, frame: ToolFrame) -> None:
        if not frame.warned:
            frame.warned = True
            logger.warning("the frame %s sends too many events: the rest of them is left out", _place(frame))

    def _leave_out(self, frame: ToolFrame) -> None:
        logger.warning("the frame %s sent far too many events: it is left out, with its tools", _place(frame))
        self.left(frame.document)
        self._agent.channel.leave_out(frame.document)

    def _take(self, frame: ToolFrame, kind: str, payload: object) -> None:
        match payload:
            case Tools():
                self._ask(frame, payload.name)
            case Flood():
                self._leave_out(frame) if payload.ended else self._warn(frame)
            case FileChooser() | Clipboard():
                self._tell_effect(frame, kind, payload)
            case Effect() if kind in ("download", "submitting"):
                self._tell_effect(frame, kind, payload)

    def _tell_effect(self, frame: ToolFrame, kind: str, effect: Effect) -> None:
        if effect.call not in frame.calls:  # a frame speaks for no call but its own
            effect.call = next(reversed(frame.calls), None)
        self._on_effect(frame, kind, effect)

    # --- the list -----------------------------------------------------------------------------------------------------

    def _ask(self, frame: ToolFrame, window_name: str) -> None:
        if not self._used:
            spawn(self._uninstall(frame), self._tasks)
            return
        if not frame.label:
            if sum(bool(other.label) for other in self._frames.values()) >= _MAX_FRAMES:
                logger.warning(
                    "the tools of the frame %s are left out: %d frames have some", _place(frame), _MAX_FRAMES
                )
                return
            frame.label = self._label(frame, window_name)
        frame.stale = True
        if not frame.reading:
            frame.reading = True
            spawn(self._read(frame), self._tasks)

    def _label(self, frame: ToolFrame, window_name: str) -> str:
        """Return what the frame is called, for as long as its document lives."""
        document = frame.document
        if document.origin == OPAQUE:
            label = OPAQUE
        elif not document.of_page:
            parts = urlsplit(document.origin)
            label = parts.netloc if parts.port else f"{parts.netloc}:{_PORTS.get(parts.scheme, parts.scheme)}"
        else:
            label = window_name if _LABEL.fullmatch(window_name) and window_name != OPAQUE else "frame"
        taken = {other.label for other in self._frames.values()}
        return next(
            one for one in (label, *(f"{label}#{again}" for again in range(2, _MAX_FRAMES + 2))) if one not in taken
        )

    async def _read(self, frame: ToolFrame) -> None:
        """Read the list of a frame until it is current. One that changes all the time is read ever more seldom."""
        now = asyncio.get_running_loop().time
        try:
            while frame.stale and frame.document in self._frames:
                frame.stale = False
                with contextlib.suppress(TransportError):
                    listed = await self._list(frame)
                    if frame.document in self._frames:
                        self._replace(frame, self._named(frame, listed))
                frame.listed.set()
                frame.pause = (
                    _FIRST_PAUSE if now() - frame.changed_at > _QUIET else min(2 * frame.pause, _LONGEST_PAUSE)
                )
                frame.changed_at = now()
                await asyncio.sleep(frame.pause)
        finally:
            frame.reading = False

    async def _list(self, frame: ToolFrame) -> object:
        text = await frame.agent.invoke("list", timeout=_LIST_TIMEOUT, returns=str)
        request = Message("capabilities/list", None)
        if len(text) <= PARSED_ON_LOOP:
            return parse_reply(request, text).payload
        if text.startswith('{"id":'):
            logger.warning("the tools of the frame %s are left out: they are more than 2 MB", _place(frame))
            return []
        return (await asyncio.to_thread(parse_reply, request, text)).payload

    def _named(self, frame: ToolFrame, listed: object) -> dict[str, tuple[str, dict[str, object]]]:
        tools: dict[str, tuple[str, dict[str, object]]] = {}
        for tool in own_tools(listed):
            if len(tools) >= _MAX_TOOLS:
                logger.warning("the frame %s has more than %d tools; the rest is left out", _place(frame), _MAX_TOOLS)
                break
            own = tool["name"]
            if len(own) <= _MAX_NAME:
                name = f"{own}{MARK}{frame.label}"
                tools[name] = own, {**tool, "name": name, "frame": frame.url}
        return tools

    def _replace(self, frame: ToolFrame, tools: dict[str, tuple[str, dict[str, object]]]) -> None:
        before, frame.tools = frame.tools, tools
        removed = [name for name in before if name not in tools]
        for name in removed:
            del self._names[name]
            self._gone[name] = None
        while len(self._gone) > _MAX_TOOLS:
            del self._gone[next(iter(self._gone))]
        for name, (own, _) in tools.items():
            self._names[name] = frame, own
            self._gone.pop(name, None)
        if before == tools:
            return
        if tools:
            self._appeared.set()
        self._on_change(removed)

    def listed(self) -> Iterable[dict[str, object]]:
        """Yield the tools of all frames, as a page lists its own: with their names here, and ``frame``, the address of
        their document."""
        for frame in self._frames.values():
            for _, tool in frame.tools.values():
                yield tool

    async def settle(self) -> None:
        """Wait until the frames that have tools have said which, for a second at most."""
        waiting = [frame.listed.wait() for frame in self._frames.values() if frame.label and not frame.listed.is_set()]
        if waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_TIMEOUT):
                    await asyncio.gather(*waiting)

    async def appear(self) -> None:
        """Return once a frame has tools, if that takes forever."""
        await self._appeared.wait()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def find(self, name: str, *, patience: float) -> tuple[ToolFrame, str] | None:
        """Return the frame that has a tool of this name, and the tool's own name; ``None`` if there is none. A tool
        that was never there may still come, for ``patience`` seconds."""
        deadline = asyncio.get_running_loop().time() + patience
        while name not in self._names and name not in self._gone and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return self._names.get(name)

    def owner(self, name: str) -> ToolFrame | None:
        """Return the frame that has a tool of this name now."""
        found = self._names.get(name)
        return found[0] if found else None

    def begin(self, frame: ToolFrame, call_id: str) -> None:
        """Note that a call is sent to a frame."""
        frame.calls[call_id] = self._sent[call_id] = frame
        while len(self._sent) > _MAX_SENT:
            del self._sent[next(iter(self._sent))]

    def sent_to(self, call_id: str) -> ToolFrame | None:
        """Return the frame that a call was sent to, which may have ended, if it was one that is there still."""
        frame = self._sent.get(call_id)
        return frame if frame is not None and frame.document in self._frames else None

    def holder_of(self, name: str) -> tuple[ToolFrame | None, str]:
        """Return the frame of a handle ``NUMBER/ID`` and the id; ``None`` if its document is gone."""
        number, _, held = name.partition("/")
        return next((frame for frame in self._frames.values() if str(frame.number) == number), None), held

    # --- the end ------------------------------------------------------------------------------------------------------

    def stand_aside(self) -> None:
        """Leave the frames alone from now on: the page is driven by ``window.abp``."""
        self._used = False
        for frame in tuple(self._frames.values()):
            if frame.label:
                spawn(self._uninstall(frame), self._tasks)

    async def uninstall(self) -> None:
        """Remove the agents from the frames of a page that stays open. Takes two seconds at most."""
        await asyncio.gather(*(self._uninstall(frame) for frame in tuple(self._frames.values())))

    async def _uninstall(self, frame: ToolFrame) -> None:
        with contextlib.suppress(TransportError):
            await frame.agent.invoke("uninstall", timeout=2.0)

    async def aclose(self) -> None:
        """End background work."""
        await cancel_and_wait(self._tasks)


def own_tools(listed: object) -> list[dict[str, Any]]:
    """Return the tools of a document's own list. One whose name has an ``@`` is left out: only a frame's has one."""
    if not isinstance(listed, list):
        return []
    return [
        one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str) and MARK not in one["name"]
    ]


def _place(frame: ToolFrame) -> str:
    return frame.label or (frame.origin if frame.origin != OPAQUE else "without an origin")
