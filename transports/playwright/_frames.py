"""The documents in frames of a page, and their WebMCP tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from .._internal.recent import Recent
from .._internal.tasks import cancel_and_wait, discard_unawaited, spawn
from ..errors import ContextLost, TransportError
from ..protocol._strict_json import in_thread_if_long
from ..protocol.messages import Message
from ._agent import (
    OPAQUE,
    Agent,
    AgentScript,
    Channel,
    DevTools,
    FrameDocument,
    FrameWatcher,
    PageAgent,
    PageObject,
    Rate,
    evaluate,
    is_closed,
)
from ._process import listen
from ._received import Clipboard, Effect, FileChooser, Flood, Tools, is_reference, parse_reply

logger = logging.getLogger("transports.playwright")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what the frames of a page may use."""

    #: Documents with an agent.
    documents: int = 1000
    #: Processes of frames.
    sessions: int = 100
    #: Messages per second of one process: all events of its documents, and all their lines in the console.
    messages: int = 5000
    #: Frames with tools.
    frames: int = 64
    #: Tools of one frame, and characters of a tool's name.
    tools: int = 500
    name: int = 128
    #: Events of a frame per second, and the number after which the frame is left out. Its agent sends fewer (agent.js).
    events: int = 300
    flood: int = 3000
    #: Calls remembered after their end, as a cancellation may come later.
    sent: int = 1000


LIMITS = Limits()


class FrameSession:
    """The DevTools session of a process of frames, inside another session."""

    def __init__(self, parent: DevTools, session_id: str) -> None:
        self._parent = parent
        self._id = session_id
        self._ids = count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, list[Callable[[Any], None]]] = defaultdict(list)
        self._rate = Rate(LIMITS.messages)
        self.ended = False

    def on(self, event: Any, f: Callable[[Any], None]) -> None:
        self._listeners[event].append(f)

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the browser's reply. Raises :class:`~transports.errors.ContextLost` if the process is gone."""
        if self.ended:
            raise _frame_gone(sent=False)
        number = next(self._ids)
        message = json.dumps({"id": number, "method": method, "params": params or {}})
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            await self._parent.send("Target.sendMessageToTarget", {"sessionId": self._id, "message": message})
            result: dict[str, Any] = await reply
            return result
        finally:
            self._replies.pop(number, None)
            # If sending failed, nobody has awaited the reply.
            discard_unawaited(reply)

    def receive(self, text: str) -> bool:
        """Handle a message of the process. Return ``False`` if there are too many in this second."""
        if self._rate.is_over():
            return False
        message = json.loads(text)
        if "id" in message:
            self._take_reply(message)
        else:
            for handle in self._listeners.get(message["method"], ()):
                handle(message.get("params", {}))
        return True

    def _take_reply(self, message: Mapping[str, Any]) -> None:
        reply = self._replies.get(message["id"])
        if reply is None or reply.done():
            return
        if "error" in message:
            reason = str(message["error"].get("message", "")) or "it failed"
            reply.set_exception(PlaywrightError(reason))
        else:
            reply.set_result(message.get("result", {}))

    def end(self) -> None:
        self.ended = True
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(_frame_gone())


def _frame_gone(*, sent: bool | None = None) -> ContextLost:
    return ContextLost("the frame navigated or went away", sent=sent)


class FrameContexts:
    """The JavaScript contexts of a page's frames.

    A frame of the page's process is a context of the page's session. A frame of another process has another session:
    the page's session attaches to it before the frame's first script, and holds the frame until our script is
    installed. In both cases the browser names the origin and the frame of a context. For the contexts of a session
    inside the page's session, ``root`` are the contexts of the page's session."""

    def __init__(
        self,
        session: DevTools,
        watcher: FrameWatcher,
        script: AgentScript,
        channel_of: Callable[[DevTools, PageObject], Channel],
        root: FrameContexts | None = None,
    ) -> None:
        self._session = session
        self._watcher = watcher
        self._script = script
        self._channel_of = channel_of
        self._root = root or self
        # Default contexts of documents by their number, without isolated worlds.
        self._contexts: dict[int, Mapping[str, Any]] = {}
        # frame → address
        self._urls: dict[str, str] = {}
        self._documents: dict[int, FrameDocument] = {}
        self._inner_sessions: dict[str, tuple[FrameSession, FrameContexts]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The following attributes are used in the root only, and so hold for the whole page.
        #: Id of the page's main frame, and the page's origin.
        self.main_frame_id = ""
        self.page_origin = ""
        #: Numbers of documents in frames, and of processes of frames.
        self.document_count = 0
        self.session_count = 0
        listen(session, "Runtime.executionContextCreated", self._on_context)
        listen(session, "Runtime.executionContextDestroyed", self._on_context_destroyed)
        listen(session, "Runtime.executionContextsCleared", lambda _: self._forget_all_contexts())
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
        if self._root is self and data.get("frameId") == self.main_frame_id:
            self.page_origin = _origin_of(context)

    def _on_context_destroyed(self, event: Mapping[str, Any]) -> None:
        self._forget_context(event["executionContextId"])

    def _on_navigated(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        self._urls[frame["id"]] = frame["url"]
        if self._root is self and not frame.get("parentId"):
            self.main_frame_id = frame["id"]

    def _on_detached(self, event: Mapping[str, Any]) -> None:
        self._urls.pop(event["frameId"], None)
        for number, document in tuple(self._documents.items()):
            if document.id == event["frameId"]:
                self._forget_context(number)

    def read_tree(self, tree: Mapping[str, Any]) -> None:
        """Learn the addresses of frames that are there already from CDP's ``FrameTree``."""
        self.main_frame_id = self.main_frame_id or tree["frame"]["id"]
        nodes = [tree]
        while nodes:
            node = nodes.pop()
            self._urls.setdefault(node["frame"]["id"], node["frame"]["url"])
            nodes += node.get("childFrames", ())
        for context in self._contexts.values():
            if context["auxData"].get("frameId") == self.main_frame_id:
                self.page_origin = _origin_of(context)

    def is_page(self, context: int) -> bool:
        """Return whether a context belongs to the main frame. Until that is known, every existing context counts."""
        if context not in self._contexts or self._root is not self:
            return False
        return not self.main_frame_id or self._contexts[context]["auxData"].get("frameId") == self.main_frame_id

    def on_agent(self, event: Mapping[str, Any]) -> None:
        self._add_document(event["executionContextId"], event["object"])

    def _add_document(self, number: int, remote: Mapping[str, Any]) -> None:
        """Add a document by the ``number`` of its context, with its agent, ``remote``, as CDP's ``RemoteObject``."""
        root = self._root
        object_id = remote.get("objectId")
        context = self._contexts.get(number)
        is_known = number in self._documents
        if object_id is None or context is None or is_known:
            return
        if root.document_count >= LIMITS.documents:
            return

        root.document_count += 1
        frame_id = context["auxData"].get("frameId", "")
        origin = _origin_of(context)
        document = FrameDocument(
            channel=self._channel_of(self._session, PageObject(object_id)),
            origin=origin,
            same_origin=origin != OPAQUE and origin == root.page_origin,
            url=self._urls.get(frame_id, "about:blank"),
            id=frame_id,
        )
        self._documents[number] = document
        self._watcher.add_document(document)

    def _forget_context(self, number: int) -> None:
        self._contexts.pop(number, None)
        document = self._documents.pop(number, None)
        if document is not None:
            self._root.document_count -= 1
            self._watcher.remove_document(document)

    def _forget_all_contexts(self) -> None:
        for number in tuple(self._contexts):
            self._forget_context(number)

    async def install_now(self) -> None:
        for number in tuple(self._contexts):
            if not self.is_page(number) and number not in self._documents:
                with contextlib.suppress(PlaywrightError, TransportError):
                    self._add_document(number, await evaluate(self._session, self._script.late, contextId=number))

    # --- processes ----------------------------------------------------------------------------------------------------

    async def attach(self) -> dict[str, Any]:
        # Leave out workers, which have no tools.
        only_frames = [{"type": "iframe", "exclude": False}, {"exclude": True}]
        options = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": False, "filter": only_frames}
        return await self._session.send("Target.setAutoAttach", options)

    def _on_attached(self, event: Mapping[str, Any]) -> None:
        """Install our script in a new process of frames, or disconnect it if there are too many."""
        session_id = event["sessionId"]
        target = event["targetInfo"]
        session = FrameSession(self._session, session_id)
        contexts = FrameContexts(session, self._watcher, self._script, self._channel_of, self._root)
        listen(session, "Runtime.inspectRequested", contexts.on_agent)
        listen(session, "Runtime.bindingCalled", contexts.on_binding)
        contexts._urls[target["targetId"]] = target["url"]
        self._inner_sessions[session_id] = session, contexts

        self._root.session_count += 1
        if self._root.session_count > LIMITS.sessions:
            self._disconnect_session(session_id, "too many processes of frames")
        else:
            spawn(contexts.install_and_resume(waiting=event["waitingForDebugger"]), self._tasks)

    def on_binding(self, event: Mapping[str, Any]) -> None:
        document = self._documents.get(event["executionContextId"])
        if event["name"] == self._script.binding and document is not None:
            self._watcher.on_emit(document, event["payload"])

    async def install_and_resume(self, *, waiting: bool) -> None:
        """Install our script in the process. If the process is ``waiting``, it is paused until then."""
        with contextlib.suppress(PlaywrightError, TransportError):
            # All commands are sent in this order, without waiting for each reply.
            await asyncio.gather(
                *installation_steps(self._session, self._script),
                self.attach(),
                self._session.send("Runtime.runIfWaitingForDebugger"),
            )
            if not waiting:
                await self.install_now()

    def _on_message(self, event: Mapping[str, Any]) -> None:
        session_id = event["sessionId"]
        if session_id not in self._inner_sessions:
            return
        session, _ = self._inner_sessions[session_id]
        if not session.receive(event["message"]):
            self._disconnect_session(session_id, f"more than {LIMITS.messages:,} messages in a second")

    def _disconnect_session(self, session_id: str, reason: str) -> None:
        logger.warning("a frame is left out, with its tools: %s", reason)
        self.end(session_id)
        spawn(self._detach_session(session_id), self._tasks)

    async def _detach_session(self, session_id: str) -> None:
        with contextlib.suppress(PlaywrightError, TransportError):
            await self._session.send("Target.detachFromTarget", {"sessionId": session_id})

    def end(self, session_id: str) -> None:
        if session_id not in self._inner_sessions:
            return
        session, contexts = self._inner_sessions.pop(session_id)
        self._root.session_count -= 1
        session.end()
        contexts._forget_all_contexts()
        for inner in tuple(contexts._inner_sessions):
            contexts.end(inner)

    def disconnect_frame(self, document: FrameDocument) -> None:
        """Disconnect the process of a document. A document in the page's own process cannot be disconnected."""
        for session_id, (_, contexts) in tuple(self._inner_sessions.items()):
            if document in contexts._documents.values():
                self._disconnect_session(session_id, "it sends events without end")
            else:
                contexts.disconnect_frame(document)


def installation_steps(session: DevTools, script: AgentScript) -> list[Coroutine[Any, Any, dict[str, Any]]]:
    return [
        session.send("Runtime.enable"),
        session.send("Runtime.addBinding", {"name": script.binding}),
        session.send("Page.enable"),
        session.send("Page.addScriptToEvaluateOnNewDocument", {"source": script.source, "includeCommandLineAPI": True}),
    ]


def _origin_of(context: Mapping[str, Any]) -> str:
    """Return the context's origin. Chromium writes ``://`` for an opaque one."""
    origin = str(context.get("origin", ""))
    if origin in ("", "://"):
        return OPAQUE
    return origin


class FrameAgent(Agent):
    """Our script in a frame, whose document may end before its page does (:meth:`mark_gone`)."""

    def __init__(self, owner: PageAgent, channel: Channel) -> None:
        self.page = owner.page
        self.channel = channel
        self._owner = owner
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def mark_gone(self) -> None:
        self._gone.set_result(None)

    async def with_deadline(self, work: Any, action: str, *, timeout: float) -> Any:
        """Await ``work`` as :meth:`.Agent.with_deadline`, and no longer than the frame's document exists.

        Raises :class:`~transports.errors.ContextLost` with ``sent=False`` if the work never reached the document."""
        if self._gone.done():
            discard_unawaited(work)
            raise _frame_gone(sent=False)

        # Make a task at once, because the page may be lost before the wait begins.
        task = asyncio.ensure_future(work)
        try:
            return await self._owner.with_deadline(self._until_gone(task), action, timeout=timeout)
        except ContextLost as lost:
            if self._owner.is_lost:
                raise
            raise _frame_gone(sent=lost.sent) from None
        finally:
            discard_unawaited(task)

    async def _until_gone(self, task: asyncio.Future[Any]) -> Any:
        await asyncio.wait((task, self._gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _frame_gone()
        try:
            return task.result()
        except PlaywrightError as error:
            if not is_closed(error):
                raise
            # A frame's session ends with the frame. Only the page's own session reports the end of page or browser.
            raise _frame_gone() from None


#: Separator of a tool's name and the label of its frame. It is not allowed in names of tools.
MARK = "@"
#: Seconds between the first two lists of a frame that keeps changing.
_FIRST_PAUSE = 0.05
#: Labels for a frame of the page's own origin. They cannot look like the label of another origin, which has a port.
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


#: Tools of a frame: name in the page's list → name in the frame, and entry in the page's list.
QualifiedTools: TypeAlias = dict[str, tuple[str, dict[str, object]]]


@dataclass(eq=False, slots=True)
class ToolFrame:
    """A document in a frame, with its tools and its calls."""

    document: FrameDocument
    agent: FrameAgent
    number: int
    label: str = ""
    tools: QualifiedTools = field(default_factory=dict)
    #: Ids of calls under way, oldest first.
    calls: dict[str, object] = field(default_factory=dict)
    rate: Rate = field(default_factory=lambda: Rate(LIMITS.events))
    #: Set after the first list of tools.
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    has_stale_list: bool = False
    is_reading_list: bool = False
    pause: float = _FIRST_PAUSE
    changed_at: float = 0.0
    warned: bool = False

    @property
    def origin(self) -> str:
        return self.document.origin

    @property
    def url(self) -> str:
        return self.document.url

    @property
    def handle_prefix(self) -> str:
        return f"frame:{self.number}/"


class FrameTools:
    """The tools of a page's frames, as a :class:`~._agent.FrameWatcher`.

    Names, labels and routing of calls are decided here, not in the page: its documents may belong to different owners
    and must not learn of each other's tools through us. A document that floods events is slowed, then left out.

    ``on_change(removed)`` is called when tools were added, removed or changed. ``on_effect(frame, kind, payload)`` is
    called for effects; the payload has the id of a call in the same frame, if one is under way."""

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
        self._tools_by_name: dict[str, tuple[ToolFrame, str]] = {}
        # Id of a call → its frame. A call stays here after its end, because a cancellation may come later.
        self._frames_by_call: Recent[str, ToolFrame] = Recent(LIMITS.sent)
        # Names of removed tools: find() does not wait for them.
        self._removed_names: Recent[str, None] = Recent(LIMITS.tools)
        self.have_had_tools = False
        self._tasks: set[asyncio.Task[None]] = set()
        # False once the page is driven by window.abp instead of its tools.
        self._are_driven = True

    # --- documents ----------------------------------------------------------------------------------------------------

    def add_document(self, document: FrameDocument) -> None:
        self._frames[document] = ToolFrame(document, FrameAgent(self._agent, document.channel), next(self._numbers))

    def remove_document(self, document: FrameDocument) -> None:
        frame = self._frames.pop(document, None)
        if frame is not None:
            frame.agent.mark_gone()
            frame.listed.set()
            self._replace_tools(frame, {})

    def on_emit(self, document: FrameDocument, text: object) -> None:
        """Deliver an event of a frame. Events beyond the rate limit are dropped unparsed."""
        frame = self._frames.get(document)
        if frame is None:
            return
        if not frame.rate.is_over():
            self._agent.deliver(text, to=partial(self._on_frame_event, frame))
        elif frame.rate.count > LIMITS.flood:
            self._disconnect_frame(frame)
        else:
            self._warn(frame)

    def _warn(self, frame: ToolFrame) -> None:
        if not frame.warned:
            frame.warned = True
            logger.warning("the frame %s sends too many events: the rest is left out", _shown_name(frame))

    def _disconnect_frame(self, frame: ToolFrame) -> None:
        logger.warning("the frame %s sent far too many events: it is left out, with its tools", _shown_name(frame))
        self.remove_document(frame.document)
        self._agent.channel.disconnect_frame(frame.document)

    def _on_frame_event(self, frame: ToolFrame, kind: str, payload: object) -> None:
        match payload:
            case Tools():
                self._on_tools_changed(frame, payload.name)
            case Flood(ended=True):
                self._disconnect_frame(frame)
            case Flood():
                self._warn(frame)
            case FileChooser() | Clipboard():
                self._report_effect(frame, kind, payload)
            case Effect() if kind in ("download", "submitting", "frameprint", "windowprint", "unfinished"):
                self._report_effect(frame, kind, payload)

    def _report_effect(self, frame: ToolFrame, kind: str, effect: Effect) -> None:
        # A frame may name its own calls only.
        if effect.call not in frame.calls:
            effect.call = next(reversed(frame.calls), None)
        self._on_effect(frame, kind, effect)

    # --- the list -----------------------------------------------------------------------------------------------------

    def _on_tools_changed(self, frame: ToolFrame, window_name: str) -> None:
        """Read the frame's list again. If the page is driven by ``window.abp``, remove our scripts from the frame."""
        if not self._are_driven:
            spawn(self._uninstall(frame), self._tasks)
            return

        if not frame.label:
            labelled_count = sum(bool(other.label) for other in self._frames.values())
            if labelled_count >= LIMITS.frames:
                logger.warning(
                    "the tools of the frame %s are left out: %d frames have some", _shown_name(frame), LIMITS.frames
                )
                return
            frame.label = self._new_label(frame.document, window_name)

        frame.has_stale_list = True
        if not frame.is_reading_list:
            frame.is_reading_list = True
            spawn(self._read_tools(frame), self._tasks)

    def _new_label(self, document: FrameDocument, window_name: str) -> str:
        """Return an unused label: of host and port for another origin, of the window's name for the page's origin."""
        if document.origin == OPAQUE:
            label = OPAQUE
        elif not document.same_origin:
            parts = urlsplit(document.origin)
            label = parts.netloc
            if not parts.port:
                default_port = {"http": 80, "https": 443}.get(parts.scheme, parts.scheme)
                label = f"{parts.netloc}:{default_port}"
        elif _LABEL.fullmatch(window_name) and window_name != OPAQUE:
            label = window_name
        else:
            label = "frame"

        used_labels = {frame.label for frame in self._frames.values()}
        unused_label = label
        number = 1
        while unused_label in used_labels:
            number += 1
            unused_label = f"{label}#{number}"
        return unused_label

    async def _read_tools(self, frame: ToolFrame) -> None:
        """Read the list while it is stale. A list that keeps changing is read with growing pauses."""
        quiet_time, max_pause = 10.0, 5.0
        now = asyncio.get_running_loop().time
        try:
            while frame.has_stale_list and frame.document in self._frames:
                frame.has_stale_list = False
                with contextlib.suppress(TransportError):
                    tools = await self._list_tools(frame)
                    if frame.document in self._frames:
                        self._replace_tools(frame, self._qualify_tools(frame, tools))
                frame.listed.set()

                was_quiet = now() - frame.changed_at > quiet_time
                if was_quiet:
                    frame.pause = _FIRST_PAUSE
                else:
                    frame.pause = min(2 * frame.pause, max_pause)
                frame.changed_at = now()
                await asyncio.sleep(frame.pause)
        finally:
            frame.is_reading_list = False
            frame.listed.set()

    async def _list_tools(self, frame: ToolFrame) -> object:
        text = await frame.agent.invoke("list", timeout=5.0, returns=str)
        if is_reference(text):
            logger.warning("the tools of the frame %s are left out: their list is longer than 2 MB", _shown_name(frame))
            return []
        reply = await in_thread_if_long(partial(parse_reply, Message("capabilities/list", None)), text)
        return reply.payload

    def _qualify_tools(self, frame: ToolFrame, tools: object) -> QualifiedTools:
        """Return the tools of a frame under names that end with the frame's label."""
        qualified_tools: QualifiedTools = {}
        for tool in own_tools(tools):
            if len(qualified_tools) >= LIMITS.tools:
                logger.warning(
                    "the frame %s has more than %d tools; the rest is left out", _shown_name(frame), LIMITS.tools
                )
                break
            name_in_frame = tool["name"]
            if len(name_in_frame) <= LIMITS.name:
                name = f"{name_in_frame}{MARK}{frame.label}"
                qualified_tools[name] = name_in_frame, {**tool, "name": name, "frame": frame.url}
        return qualified_tools

    def _replace_tools(self, frame: ToolFrame, tools: QualifiedTools) -> None:
        old_tools = frame.tools
        frame.tools = tools
        removed_names = [name for name in old_tools if name not in tools]
        for name in removed_names:
            del self._tools_by_name[name]
            self._removed_names[name] = None

        for name, (name_in_frame, _) in tools.items():
            self._tools_by_name[name] = frame, name_in_frame
            self._removed_names.pop(name, None)

        if old_tools == tools:
            return
        if tools:
            self.have_had_tools = True
        self._on_change(removed_names)

    def listed(self) -> Iterable[dict[str, object]]:
        """Yield the tools of all frames for the page's list. ``frame`` of a tool is the address of its document."""
        for frame in self._frames.values():
            for _, tool in frame.tools.values():
                yield tool

    async def wait_until_listed(self) -> None:
        """Wait until the first list of each frame with tools was read, for a second at most."""
        unlisted = [frame for frame in self._frames.values() if frame.label and not frame.listed.is_set()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*(frame.listed.wait() for frame in unlisted))

    # --- calls --------------------------------------------------------------------------------------------------------

    async def find(self, name: str, *, patience: float) -> tuple[ToolFrame, str] | None:
        """Return the frame of a tool, and its name there. Wait up to ``patience`` seconds for an unknown tool."""
        now = asyncio.get_running_loop().time
        deadline = now() + patience
        while name not in self._tools_by_name and name not in self._removed_names and now() < deadline:
            await asyncio.sleep(0.02)
        return self._tools_by_name.get(name)

    def frame_of_tool(self, name: str) -> ToolFrame | None:
        if name not in self._tools_by_name:
            return None
        frame, _ = self._tools_by_name[name]
        return frame

    def register_call(self, frame: ToolFrame, call_id: str) -> None:
        frame.calls[call_id] = self._frames_by_call[call_id] = frame

    def frame_of_call(self, call_id: str) -> ToolFrame | None:
        """Return the frame of a call, which may have ended, or ``None`` if the frame is gone."""
        frame = self._frames_by_call.get(call_id)
        if frame is None or frame.document not in self._frames:
            return None
        return frame

    def frame_of_handle(self, name: str) -> tuple[ToolFrame | None, str]:
        """Return the frame and the id in a handle ``NUMBER/ID``. The frame is ``None`` if its document is gone."""
        number, _, held_id = name.partition("/")
        frame = next((frame for frame in self._frames.values() if str(frame.number) == number), None)
        return frame, held_id

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop_driving(self) -> None:
        """Remove our scripts from all frames: the page turned out to be driven by ``window.abp``."""
        self._are_driven = False
        for frame in tuple(self._frames.values()):
            if frame.label:
                spawn(self._uninstall(frame), self._tasks)

    async def uninstall(self) -> None:
        """Remove our scripts from the frames of a page that stays open. This takes two seconds at most."""
        await asyncio.gather(*(self._uninstall(frame) for frame in tuple(self._frames.values())))

    async def _uninstall(self, frame: ToolFrame) -> None:
        with contextlib.suppress(TransportError):
            await frame.agent.invoke("uninstall", timeout=2.0)

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)


def own_tools(tools: object) -> list[dict[str, Any]]:
    """Return the tools of the document itself, without those of frames, whose names contain an ``@``."""
    if not isinstance(tools, list):
        return []
    tools_with_names = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    return [tool for tool in tools_with_names if MARK not in tool["name"]]


def _shown_name(frame: ToolFrame) -> str:
    if frame.label:
        return frame.label
    if frame.origin == OPAQUE:
        return "without an origin"
    return frame.origin
