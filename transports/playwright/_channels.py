"""The two channels into a page, and the tracking of documents in its frames.

* :class:`CdpChannel` uses a CDP session of its own (Chromium and its relatives). A CDP call costs half of Playwright's
  ``evaluate``, can return streams, leaves nothing in the page that an app could see, and holds the agent where no
  script can reach it. So it is preferred where it exists. :class:`FrameContexts` and :class:`FrameSession` track the
  documents in frames and attach to frames of other processes.
* :class:`PlaywrightChannel` uses Playwright's own API (every browser it drives, so Firefox and WebKit too).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from playwright.async_api import CDPSession, Error as PlaywrightError

from .._internal.tasks import spawn
from ..errors import ContextLost, ProtocolError, TransportError, UnsupportedBinary, first_line
from ..protocol._plain_text import origin_of
from ._channel import (
    A4_HEIGHT,
    A4_WIDTH,
    OPAQUE,
    Channel,
    DevTools,
    FrameDocument,
    FrameWatcher,
    OnEmit,
    PageObject,
    listen,
    listener,
)

if TYPE_CHECKING:
    from playwright.async_api import Frame, JSHandle, Page

logger = logging.getLogger("transports.playwright")

#: Messages per second of one process of frames: all events of its documents, and all their lines in the console.
_MAX_MESSAGES = 5000
#: Documents in frames of one page with an agent, and processes of such frames.
_MAX_DOCUMENTS, _MAX_SESSIONS = 1000, 100
#: Filter for targets to attach to: frames only, as workers have no tools.
_ONLY_FRAMES = [{"type": "iframe", "exclude": False}, {"exclude": True}]


class Rate:
    """Rate limit: a counter of events per second."""

    __slots__ = ("_begun", "count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self._begun = 0.0

    def is_over(self) -> bool:
        """Count an event, and return whether it exceeds the limit of this second."""
        now = time.monotonic()
        if now - self._begun >= 1.0:
            self._begun, self.count = now, 0
        self.count += 1
        return self.count > self.limit


class FrameSession:
    """A CDP session with a process of frames, inside another session. Implements :class:`~._channel.DevTools`."""

    def __init__(self, parent: DevTools, session_id: str) -> None:
        self._parent, self._id = parent, session_id
        self._ids = count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, list[Callable[[Any], None]]] = defaultdict(list)
        self._rate = Rate(_MAX_MESSAGES)
        self.ended = False

    def on(self, event: Any, f: Callable[[Any], None]) -> None:
        """Register a listener, as :meth:`DevTools.on <transports.playwright._channel.DevTools.on>`."""
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
                reply.exception()  # mark it as retrieved: if sending failed first, the reply was never awaited

    def take(self, text: str) -> bool:
        """Handle a message of the process. Returns ``False`` if there are too many in this second."""
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
        """Fail all commands that wait for this process, which is gone."""
        self.ended = True
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(_gone())


def _gone(*, sent: bool | None = None) -> ContextLost:
    return ContextLost("the frame navigated or went away", sent=sent)


class FrameContexts:
    """The documents in frames that one session reaches, and the sessions inside that session.

    A frame of the page's own process is a context of the page's session. A frame of another process has a session of
    its own: the page's session attaches to it before the frame's first script, and holds the frame until our script is
    installed. In both cases the browser names origin and frame of a context.

    ``channel_of(session, agent)`` makes the channel of a document. In the page's own session :meth:`is_page` separates
    the page from its frames. ``source``, which hands the agent over, ``late`` and ``binding`` are those of
    :meth:`Channel.install <transports.playwright._channel.Channel.install>`.
    """

    def __init__(
        self,
        session: DevTools,
        watcher: FrameWatcher,
        source: str,
        late: str,
        binding: str,
        channel_of: Callable[[DevTools, PageObject], Channel],
        root: FrameContexts | None = None,
    ) -> None:
        self._session = session
        self._watcher = watcher
        self._source = source
        self._late = late
        self._binding = binding
        self._channel_of = channel_of
        self._root = root or self
        self._contexts: dict[int, Mapping[str, Any]] = {}  # default contexts of documents, no isolated worlds
        self._urls: dict[str, str] = {}  # frame → address
        self._documents: dict[int, FrameDocument] = {}
        self._inner: dict[str, tuple[FrameSession, FrameContexts]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # of the root, so for the whole page:
        self.page = ""  # id of the page's main frame
        self.origin = ""  # origin of the page
        self.total = 0  # documents in frames
        self.sessions = 0  # processes of frames
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
        """Read the page's tree of frames (CDP ``FrameTree``) at the beginning of the session."""
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
        """Return whether a context is the page's own. False for a context that has gone already."""
        known = self._contexts.get(context)
        ours = known is not None and self._root is self
        return ours and (not self.page or self._contexts[context]["auxData"].get("frameId") == self.page)

    def keep(self, number: int, remote: Mapping[str, Any]) -> None:
        """Keep the agent of a frame's document, within the limit of documents, and announce the document."""
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
        """Forward an output of a frame's document to the watcher."""
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
        """Install the agent in documents that are loaded already."""
        for number in tuple(self._contexts):
            if not self.is_page(number) and number not in self._documents:
                with contextlib.suppress(PlaywrightError, TransportError):
                    self.keep(number, await _evaluate(self._session, self._late, contextId=number))

    # --- processes ----------------------------------------------------------------------------------------------------

    async def attach(self) -> None:
        """Attach to frames of other processes from now on."""
        options = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": False, "filter": _ONLY_FRAMES}
        await self._session.send("Target.setAutoAttach", options)

    def _on_attached(self, event: Mapping[str, Any]) -> None:
        inner, root = FrameSession(self._session, event["sessionId"]), self._root
        contexts = FrameContexts(inner, self._watcher, self._source, self._late, self._binding, self._channel_of, root)
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
        """Handle a call of the binding."""
        if event["name"] == self._binding:
            self.emitted(event["executionContextId"], event["payload"])

    async def begin(self, *, waiting: bool) -> None:
        """Install our script in every document of a process. With ``waiting``, the process is paused until that is
        done."""
        send = self._session.send
        script = {"source": self._source, "includeCommandLineAPI": True}
        with contextlib.suppress(PlaywrightError, TransportError):
            await asyncio.gather(  # pipelined: sent in this order, without waiting for each reply
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
        """Forget a process of frames, and the processes inside that process."""
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
        """Disconnect the process of a document that harms the others. Returns ``False`` for a document in the page's
        own process."""
        for session_id, (_, contexts) in tuple(self._inner.items()):
            if document in contexts._documents.values():
                self._drop(session_id, "it sends events without end")
                return True
            if contexts.drop(document):
                return True
        return False


def _origin(context: Mapping[str, Any]) -> str:
    """Return the origin of a context. Chromium writes ``://`` for an opaque one."""
    origin = str(context.get("origin", ""))
    return origin if origin not in ("", "://") else OPAQUE


async def open_channel(page: Page) -> Channel:
    """Open the best channel that the page's browser offers."""
    try:
        return CdpChannel(await page.context.new_cdp_session(page))
    except PlaywrightError as error:
        if "only available in Chromium" not in error.message and "not supported" not in error.message:
            raise
        return PlaywrightChannel(page)


@cache
def _calling(method: str, arguments: int) -> str:
    # Strict and without spread syntax, so that functions replaced by the page never see the agent's arguments.
    names = ", ".join(f"a{index}" for index in range(arguments))
    return f'function({names}) {{ "use strict"; return this.{method}({names}); }}'


class CdpChannel(Channel):
    """The channel over a CDP session of the page or of a frame. Its scripts and bindings end with the session."""

    cdp: DevTools

    def __init__(self, cdp: DevTools, agent: PageObject | None = None) -> None:
        self.cdp = cdp
        self.agent = agent
        self._frames: FrameContexts | None = None

    async def install(
        self,
        source: str,
        late: str,
        binding: str,
        *,
        on_emit: OnEmit,
        on_document: Callable[[], None],
        now: bool,
        frames: FrameWatcher | None,
    ) -> None:
        """Install as :meth:`Channel.install` describes, with a binding of the Runtime domain."""
        # `inspect` of the console's command line API hands an object to the debugging session. It exists only while our
        # script runs, before any other script; no script of the page can call it.
        handing_over = f"(agent => {{ if (agent) inspect(agent); }})({source})"
        contexts: FrameContexts | None = None
        if frames is not None:
            contexts = FrameContexts(self.cdp, frames, handing_over, late, binding, CdpChannel)
        self._frames = contexts

        def on_binding(event: Mapping[str, Any]) -> None:
            if contexts is not None and not contexts.is_page(event["executionContextId"]):
                contexts.hear(event)
            elif event["name"] == binding:
                on_emit(event["payload"])

        def on_agent(event: Mapping[str, Any]) -> None:
            if contexts is not None and not contexts.is_page(event["executionContextId"]):
                contexts.keep(event["executionContextId"], event["object"])
            else:
                self._keep(event["object"])

        # Changes of the address within a document (a fragment, history.pushState) are another event, not this one.
        def on_frame_navigated(event: Mapping[str, Any]) -> None:
            if not event["frame"].get("parentId"):
                on_document()

        listen(self.cdp, "Runtime.bindingCalled", on_binding)
        listen(self.cdp, "Page.frameNavigated", on_frame_navigated)
        # Both come for each document, in this order and before any reply from that document.
        listen(self.cdp, "Runtime.executionContextsCleared", lambda _: setattr(self, "agent", None))
        listen(self.cdp, "Runtime.inspectRequested", on_agent)
        script = {"source": handing_over, "includeCommandLineAPI": True}
        steps = [  # pipelined: sent in this order, without waiting for each reply
            self.cdp.send("Runtime.enable"),
            self.cdp.send("Runtime.addBinding", {"name": binding}),
            self.cdp.send("Page.enable"),
            self.cdp.send("Page.addScriptToEvaluateOnNewDocument", script),
        ]
        if contexts is None:
            await asyncio.gather(*steps)
        else:
            tree, *_ = await asyncio.gather(self.cdp.send("Page.getFrameTree"), contexts.attach(), *steps)
            contexts.know(tree["frameTree"])
        if now:
            self._keep(await _evaluate(self.cdp, late))
            if contexts is not None:
                await contexts.install_now()

    def _keep(self, remote: Mapping[str, Any]) -> None:
        object_id = remote.get("objectId")
        self.agent = None if object_id is None else PageObject(object_id)

    async def run(self, expression: str) -> None:
        await _evaluate(self.cdp, expression)

    async def find_agent(self) -> PageObject | None:
        if self.agent is None:
            await self.ping()
        return self.agent

    async def ping(self) -> None:
        await self.cdp.send("Runtime.evaluate", {"expression": "0"})

    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        reply = await self.cdp.send(
            "Runtime.callFunctionOn",
            {
                "objectId": agent.ref,
                "functionDeclaration": _calling(method, len(args)),
                "arguments": [{"objectId": arg.ref} if isinstance(arg, PageObject) else {"value": arg} for arg in args],
                "awaitPromise": True,
                "returnByValue": by_value,
            },
        )
        if "exceptionDetails" in reply:
            exception = reply["exceptionDetails"].get("exception", {})
            raise _page_error(method, str(exception.get("description", "?")))
        if by_value:
            return reply["result"].get("value")
        if "objectId" not in reply["result"]:
            raise _page_error(method, "it returned no object")
        return PageObject(reply["result"]["objectId"])

    async def set_file(self, element: PageObject, path: Path) -> None:
        """Choose a file as :meth:`Channel.set_file` describes. The file must be on the browser's machine."""
        await self.cdp.send("DOM.setFileInputFiles", {"objectId": element.ref, "files": [str(path)]})

    async def release_object(self, page_object: PageObject) -> None:
        await self.cdp.send("Runtime.releaseObject", {"objectId": page_object.ref})

    async def collect_garbage(self) -> None:
        await self.cdp.send("HeapProfiler.collectGarbage")

    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """Print as :meth:`Channel.print_to_pdf` describes; return the name of a stream of the IO domain."""
        options: dict[str, object] = {"printBackground": True, "transferMode": "ReturnAsStream"}
        options |= {"paperWidth": A4_WIDTH, "paperHeight": paper_height or A4_HEIGHT}
        options["preferCSSPageSize"] = paper_height is None
        stream: str = (await self.cdp.send("Page.printToPDF", options))["stream"]
        return stream

    def leave_out(self, document: FrameDocument) -> bool:
        """Disconnect a frame as :meth:`Channel.leave_out` describes, if it has a process of its own."""
        return self._frames is not None and self._frames.drop(document)

    async def close(self) -> None:
        """Detach the page's session, which removes its scripts and bindings."""
        if isinstance(self.cdp, CDPSession):
            await self.cdp.detach()


class PlaywrightChannel(Channel):
    """The channel over Playwright's own API.

    It leaves globals of Playwright's in the page (``__playwright__binding__…``). Playwright runs everything in the
    page's own world, so a page that replaces ``eval`` in time can get hold of the agent. It gains nothing: the agent
    has no privileges, and its output is validated (:mod:`._received`).
    """

    def __init__(self, page: Page, frame: Frame | None = None, agent_at: tuple[str, str] | None = None) -> None:
        self._page = page
        self._world = frame or page.main_frame
        self._undo = contextlib.AsyncExitStack()
        self._place, self._key = agent_at or (f"_{secrets.token_hex(8)}", secrets.token_hex(16))

    async def install(
        self,
        source: str,
        late: str,
        binding: str,
        *,
        on_emit: OnEmit,
        on_document: Callable[[], None],
        now: bool,
        frames: FrameWatcher | None,
    ) -> None:
        """Install as :meth:`Channel.install` describes, with a binding and an init script of Playwright's."""
        watched = _Frames(self, frames) if frames is not None else None

        @listener
        def on_binding(called: Mapping[str, Any], text: object = None) -> None:
            if called["frame"] != self._page.main_frame:
                if watched is not None:
                    watched.heard(called["frame"], text)
            elif text != "":
                on_emit(text)
            else:
                self.agent = None
                on_document()

        # Playwright's "framenavigated" also fires for changes of the address within a document. So each document
        # announces itself by emitting an empty text, which the agent never does.
        announcing = f"globalThis[{binding!r}]?.('')"
        if watched is None:
            announcing = f"if (globalThis === globalThis.top) {announcing}"
        else:
            watched.begin(self._undo)
        # A property that no script can replace returns the agent for the right key.
        handing_over = f"""(agent => {{
          "use strict";
          const value = key => (key === {self._key!r} ? agent : undefined);
          if (agent) Object.defineProperty(globalThis, {self._place!r}, {{ value }});
        }})({source})"""
        self._undo.push_async_exit(await self._page.expose_binding(binding, on_binding))
        self._undo.push_async_exit(await self._page.add_init_script(f"{announcing}; {handing_over}"))
        if now:
            await self.keep(await self._evaluated(late))
            if watched is not None:
                await watched.install_now(late)

    async def _evaluated(self, expression: str) -> JSHandle:
        try:
            return await self._world.evaluate_handle(expression)
        except PlaywrightError as error:
            raise _start_error(error.message) from None

    async def run(self, expression: str) -> None:
        await (await self._evaluated(expression)).dispose()

    def inside(self, frame: Frame) -> PlaywrightChannel:
        """Return the channel to the current document of a frame of the page."""
        return PlaywrightChannel(self._page, frame, (self._place, self._key))

    async def keep(self, handle: JSHandle) -> None:
        """Keep the agent, if ``handle`` refers to one."""
        known = await handle.evaluate("agent => typeof agent === 'object' && agent !== null")
        self.agent = PageObject(handle) if known is True else None

    async def find_agent(self) -> PageObject | None:
        if self.agent is None:
            await self.keep(
                await self._world.evaluate_handle("args => globalThis[args[0]]?.(args[1])", [self._place, self._key])
            )
        return self.agent

    async def ping(self) -> None:
        await self._world.evaluate("0")

    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        handle: JSHandle = agent.ref
        js_args = [arg.ref if isinstance(arg, PageObject) else arg for arg in args]
        if not by_value:
            calling = f"(agent, args) => {{ 'use strict'; return agent.{method}(...args); }}"
            return PageObject(await handle.evaluate_handle(calling, js_args))
        outcome = await handle.evaluate(
            f"async (agent, args) => {{ 'use strict'; try {{ return [await agent.{method}(...args)]; }}"
            " catch (error) { return [null, String(error)]; } }",
            js_args,
        )
        match outcome:
            case [value]:
                return value
            case [_, str() as description]:
                raise _page_error(method, description)
        raise _page_error(method, "it returned no outcome")

    async def set_file(self, element: PageObject, path: Path) -> None:
        """Choose a file as :meth:`Channel.set_file` describes. Playwright uploads the file to a browser on another
        machine."""
        input_element = element.ref.as_element()
        if input_element is None:
            raise _page_error("createFileInput", "it returned no element")
        await input_element.set_input_files(path)

    async def release_object(self, page_object: PageObject) -> None:
        await page_object.ref.dispose()

    async def collect_garbage(self) -> None:
        await self._page.request_gc()

    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """Print as :meth:`Channel.print_to_pdf` describes; return the PDF itself."""
        try:
            return await self._page.pdf(
                print_background=True,
                width=f"{A4_WIDTH}in",
                height=f"{paper_height or A4_HEIGHT}in",
                prefer_css_page_size=paper_height is None,
            )
        except PlaywrightError as error:
            if "PDF" not in error.message and "not supported" not in error.message:
                raise
            raise UnsupportedBinary(
                "the app printed its page, but this browser cannot make PDFs; open the app in Chromium"
            ) from None

    async def close(self) -> None:
        await self._undo.aclose()


class _Frames:
    """The documents in the frames of a page, tracked by Playwright's binding: each call names its frame, and the first
    call of each document has an empty text.

    A document's origin is that of its address. A document without one, such as ``about:srcdoc``, counts as opaque.
    """

    def __init__(self, page: PlaywrightChannel, watcher: FrameWatcher) -> None:
        self._channel, self._page, self._watcher = page, page._page, watcher
        self._documents: dict[Frame, FrameDocument] = {}
        self._on_detached = listener(self._leave)

    def begin(self, undo: contextlib.AsyncExitStack) -> None:
        self._page.on("framedetached", self._on_detached)
        undo.callback(self._page.remove_listener, "framedetached", self._on_detached)

    def _leave(self, frame: Frame) -> None:
        if document := self._documents.pop(frame, None):
            self._watcher.left(document)

    def heard(self, frame: Frame, text: object) -> None:
        """Handle an output of the document of a frame; an empty text announces a new document."""
        if text == "":
            self._leave(frame)
        else:
            self._watcher.emitted(self.document_of(frame), text)

    async def install_now(self, source: str) -> None:
        """Install the agent in documents that are loaded already."""
        for frame in self._page.frames[1:]:
            with contextlib.suppress(PlaywrightError):  # a frame that is going away
                channel = self._channel.inside(frame)
                await channel.keep(await frame.evaluate_handle(source))
                self.document_of(frame).channel.agent = channel.agent

    def document_of(self, frame: Frame) -> FrameDocument:
        """Return the current document of a frame."""
        document = self._documents.get(frame)
        if document is None:
            origin = _origin_of(frame.url)
            of_page = origin == _origin_of(self._page.url) != OPAQUE
            document = FrameDocument(self._channel.inside(frame), origin, of_page, frame.url, frame=frame)
            self._documents[frame] = document
            self._watcher.came(document)
        return document


def _origin_of(url: str) -> str:
    return origin_of(url) or OPAQUE


async def _evaluate(session: DevTools, expression: str, **options: object) -> Mapping[str, Any]:
    """Return the value of an expression as CDP's ``RemoteObject``.

    Raises :class:`~transports.errors.ProtocolError` if it throws."""
    reply = await session.send("Runtime.evaluate", {"expression": expression, **options})
    if "exceptionDetails" in reply:
        thrown = reply["exceptionDetails"].get("exception", {})
        raise _start_error(str(thrown.get("description", thrown.get("value", "?"))))
    return cast("Mapping[str, Any]", reply["result"])


def _start_error(description: str) -> ProtocolError:
    return ProtocolError(
        f"the session cannot begin in this page: {first_line(description)}; connect before the page's scripts run "
        "(without page=)"
    )


def _page_error(method: str, description: str) -> ProtocolError:
    return ProtocolError(f"the page failed in {method}: {first_line(description)}")
