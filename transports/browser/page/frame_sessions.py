"""The documents in the frames of a page, over CDP: which there are, each with its agent, and who has said what.

A frame of the page's own process is a context of the page's session. One of another process has a session of its own,
which the page's session attaches before the frame's first script, and holds the frame until our script is there. In
both, origin and frame of a context are the browser's word.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from playwright.async_api import Error as PlaywrightError

from ...errors import ContextLost, TransportError
from ...tasks import spawn
from .channel import OPAQUE, Channel, DevTools, FrameDocument, FrameWatcher, PageObject
from .listening import listen

__all__ = ["FrameContexts", "FrameSession", "Rate"]

logger = logging.getLogger("transports.browser")

#: Messages of one process of frames in a second: all that its documents emit, and all that they write to the console.
_MAX_MESSAGES = 5000
#: Documents in frames of one page that get an agent, and processes.
_MAX_DOCUMENTS, _MAX_SESSIONS = 1000, 100
#: What the page's session attaches: frames only, as workers have no tools.
_ONLY_FRAMES = [{"type": "iframe", "exclude": False}, {"exclude": True}]


class Rate:
    """Counts what comes, by the second."""

    __slots__ = ("_begun", "count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self._begun = 0.0

    def is_over(self) -> bool:
        """Count one, and return whether more than the limit came in this second."""
        now = time.monotonic()
        if now - self._begun >= 1.0:
            self._begun, self.count = now, 0
        self.count += 1
        return self.count > self.limit


class FrameSession:
    """A CDP session with a process of frames, inside another session. It is a :class:`~.channel.DevTools`."""

    def __init__(self, parent: DevTools, session_id: str) -> None:
        self._parent, self._id = parent, session_id
        self._ids = count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, list[Callable[[Any], None]]] = defaultdict(list)
        self._rate = Rate(_MAX_MESSAGES)
        self.ended = False

    def on(self, event: Any, f: Callable[[Any], None]) -> None:
        """As :meth:`DevTools.on <transports.browser.page.channel.DevTools.on>`."""
        self._listeners[event].append(f)

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a command and return its result.

        Raises :class:`~transports.errors.ContextLost` if the process is gone, and Playwright's error if the command
        fails.
        """
        if self.ended:
            raise _gone(sent=False)
        number = next(self._ids)
        message = json.dumps({"id": number, "method": method, "params": params or {}})
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            await self._parent.send("Target.sendMessageToTarget", {"sessionId": self._id, "message": message})
            result: dict[str, Any] = await reply
            return result
        finally:
            self._replies.pop(number, None)
            if reply.done() and not reply.cancelled():
                reply.exception()  # which sending may have raised first

    def take(self, text: str) -> bool:
        """Take a message of the process. Returns ``False`` once there are too many in a second."""
        if self._rate.is_over():
            return False
        message = json.loads(text)
        if "id" in message:
            reply = self._replies.get(message["id"])
            if reply is not None and not reply.done():
                if "error" in message:
                    reply.set_exception(PlaywrightError(str(message["error"].get("message", "")) or "it failed"))
                else:
                    reply.set_result(message.get("result", {}))
        else:
            for hear in self._listeners.get(message["method"], ()):
                hear(message.get("params", {}))
        return True

    def end(self) -> None:
        """Fail what waits for this process, which is gone."""
        self.ended = True
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(_gone())


def _gone(**details: bool) -> ContextLost:
    return ContextLost("the frame navigated or went away", details=details)


class FrameContexts:
    """The documents in frames that one session reaches, and the sessions inside it.

    ``channel_of(session, agent)`` makes the channel of a document. For the page's own session ``is_page`` says which
    frame is the page itself; all others are frames. ``source`` and ``binding`` are those of :meth:`Channel.install
    <transports.browser.page.channel.Channel.install>`.
    """

    def __init__(
        self,
        session: DevTools,
        watcher: FrameWatcher,
        source: tuple[str, str],
        binding: str,
        channel_of: Callable[[DevTools, PageObject], Channel],
        root: FrameContexts | None = None,
    ) -> None:
        self._session = session
        self._watcher = watcher
        self._source = source
        self._binding = binding
        self._channel_of = channel_of
        self._root = root or self
        self._contexts: dict[int, Mapping[str, Any]] = {}  # those that are a document's own
        self._urls: dict[str, str] = {}  # frame → address
        self._documents: dict[int, FrameDocument] = {}
        self._inner: dict[str, tuple[FrameSession, FrameContexts]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.page = ""  # the page's own frame
        self.origin = ""  # the page's
        self.total = 0  # documents of the whole page
        self.sessions = 0
        listen(session, "Runtime.executionContextCreated", self._on_context)
        listen(session, "Runtime.executionContextDestroyed", lambda event: self._leave(event["executionContextId"]))
        listen(session, "Runtime.executionContextsCleared", lambda _: self._leave_all())
        listen(session, "Page.frameNavigated", self._on_navigated)
        listen(session, "Page.frameDetached", self._on_detached)
        listen(session, "Target.attachedToTarget", self._on_attached)
        listen(session, "Target.receivedMessageFromTarget", self._on_message)
        listen(session, "Target.detachedFromTarget", lambda event: self.end(event["sessionId"]))

    # --- documents ----------------------------------------------------------------------------------------------------

    def _on_context(self, event: Mapping[str, Any]) -> None:
        context = event["context"]
        data = context.get("auxData", {})
        if not data.get("isDefault"):
            return
        self._contexts[context["id"]] = context
        if self._root is self and data.get("frameId") == self.page:
            self.origin = _origin(context)

    def _on_navigated(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        self._urls[frame["id"]] = frame["url"]
        if self._root is self and not frame.get("parentId"):
            self.page = frame["id"]

    def _on_detached(self, event: Mapping[str, Any]) -> None:
        self._urls.pop(event["frameId"], None)
        for number, document in tuple(self._documents.items()):
            if document.id == event["frameId"]:
                self._leave(number)

    def know(self, tree: Mapping[str, Any]) -> None:
        """Take the page's tree of frames, as CDP has it, when the session begins."""
        self.page = self.page or tree["frame"]["id"]
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            self._urls.setdefault(node["frame"]["id"], node["frame"]["url"])
            waiting += node.get("childFrames", ())
        for context in self._contexts.values():
            if context["auxData"].get("frameId") == self.page:
                self.origin = _origin(context)

    def is_page(self, context: int) -> bool:
        """Whether a context is that of the page. One that is not known, as it has gone, is neither page nor frame."""
        known = self._contexts.get(context)
        ours = known is not None and self._root is self
        return ours and (not self.page or self._contexts[context]["auxData"].get("frameId") == self.page)

    def keep(self, number: int, remote: Mapping[str, Any]) -> None:
        """Take the agent that a frame's document has handed over."""
        object_id, root = remote.get("objectId"), self._root
        if (
            object_id is None
            or number not in self._contexts
            or number in self._documents
            or root.total >= _MAX_DOCUMENTS
        ):
            return
        root.total += 1
        context = self._contexts[number]
        frame, origin = context["auxData"].get("frameId", ""), _origin(context)
        channel = self._channel_of(self._session, PageObject(object_id))
        of_page = origin == root.origin != OPAQUE
        document = FrameDocument(channel, origin, of_page, self._urls.get(frame, "about:blank"), frame)
        self._documents[number] = document
        self._watcher.came(document)

    def emitted(self, number: int, text: object) -> None:
        """Pass on what a frame's document has emitted."""
        if document := self._documents.get(number):
            self._watcher.emitted(document, text)

    def _leave(self, number: int) -> None:
        self._contexts.pop(number, None)
        if document := self._documents.pop(number, None):
            self._root.total -= 1
            self._watcher.left(document)

    def _leave_all(self) -> None:
        for number in tuple(self._contexts):
            self._leave(number)

    async def install_now(self) -> None:
        """Give an agent to the documents that are loaded already."""
        for number in tuple(self._contexts):
            if not self.is_page(number) and number not in self._documents:
                with contextlib.suppress(PlaywrightError, TransportError):
                    command = {"expression": self._source[0], "contextId": number}
                    self.keep(number, (await self._session.send("Runtime.evaluate", command))["result"])

    # --- processes ----------------------------------------------------------------------------------------------------

    async def attach(self) -> None:
        """Attach to frames of other processes from now on."""
        options = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": False, "filter": _ONLY_FRAMES}
        await self._session.send("Target.setAutoAttach", options)

    def _on_attached(self, event: Mapping[str, Any]) -> None:
        inner, root = FrameSession(self._session, event["sessionId"]), self._root
        contexts = FrameContexts(inner, self._watcher, self._source, self._binding, self._channel_of, root)
        listen(inner, "Runtime.inspectRequested", lambda one: contexts.keep(one["executionContextId"], one["object"]))
        listen(inner, "Runtime.bindingCalled", contexts.hear)
        root.sessions += 1
        contexts._urls[event["targetInfo"]["targetId"]] = event["targetInfo"]["url"]
        self._inner[event["sessionId"]] = inner, contexts
        if root.sessions > _MAX_SESSIONS:
            self._drop(event["sessionId"], "too many processes of frames")
        else:
            spawn(contexts.begin(waiting=event["waitingForDebugger"]), self._tasks)

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take a call of the binding."""
        if event["name"] == self._binding:
            self.emitted(event["executionContextId"], event["payload"])

    async def begin(self, *, waiting: bool) -> None:
        """Have our script in every document of a process, which may be ``waiting`` for it."""
        send = self._session.send
        script = {"source": self._source[1], "includeCommandLineAPI": True}
        with contextlib.suppress(PlaywrightError, TransportError):
            await asyncio.gather(  # sent in this order, and not waited for one by one
                send("Runtime.enable"),
                send("Runtime.addBinding", {"name": self._binding}),
                send("Page.enable"),
                send("Page.addScriptToEvaluateOnNewDocument", script),
                self.attach(),
                send("Runtime.runIfWaitingForDebugger"),
            )
            if not waiting:
                await self.install_now()

    def _on_message(self, event: Mapping[str, Any]) -> None:
        found = self._inner.get(event["sessionId"])
        if found is not None and not found[0].take(event["message"]):
            self._drop(event["sessionId"], f"more than {_MAX_MESSAGES:,} messages in a second")

    def _drop(self, session_id: str, reason: str) -> None:
        logger.warning("a frame is left out, with its tools: %s", reason)
        self.end(session_id)
        spawn(self._detach(session_id), self._tasks)

    async def _detach(self, session_id: str) -> None:
        with contextlib.suppress(PlaywrightError, TransportError):
            await self._session.send("Target.detachFromTarget", {"sessionId": session_id})

    def end(self, session_id: str) -> None:
        """Forget a process of frames, with the processes inside it."""
        found = self._inner.pop(session_id, None)
        if found is None:
            return
        session, contexts = found
        self._root.sessions -= 1
        session.end()
        contexts._leave_all()
        for inner in tuple(contexts._inner):
            contexts.end(inner)

    def drop(self, document: FrameDocument) -> bool:
        """Leave a document out that harms the others, with its process if it has one of its own."""
        for session_id, (_, contexts) in tuple(self._inner.items()):
            if document in contexts._documents.values():
                self._drop(session_id, "it does not end")
                return True
            if contexts.drop(document):
                return True
        return False


def _origin(context: Mapping[str, Any]) -> str:
    """Return the origin of a context: the browser writes ``://`` for an opaque one."""
    origin = str(context.get("origin", ""))
    return origin if origin not in ("", "://") else OPAQUE
