"""The two channels into a page.

* :class:`CdpChannel` uses a CDP session of its own (Chromium and its relatives). A CDP call costs half of Playwright's
  ``evaluate``, can return streams, leaves nothing in the page that an app could see, and holds the agent where no
  script can reach it. So it is preferred where it exists.
* :class:`PlaywrightChannel` uses Playwright's own API (every browser it drives, so Firefox and WebKit too).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import CDPSession, Error as PlaywrightError

from ..errors import ProtocolError, UnsupportedBinary, first_line
from ..protocol._plain_text import origin_of
from ._agent import (
    OPAQUE,
    AgentScript,
    Channel,
    DevTools,
    FrameDocument,
    FrameWatcher,
    PageObject,
    evaluate,
    start_error,
)
from ._frames import FrameContexts, installation_steps
from ._process import listen, listener

if TYPE_CHECKING:
    from playwright.async_api import Frame, JSHandle, Page

#: Size of the paper in inches, unless the page names another.
A4_WIDTH = 8.27
A4_HEIGHT = 11.69


async def open_channel(page: Page) -> Channel:
    """Return the channel into a page: over CDP where the browser has it."""
    try:
        return CdpChannel(await page.context.new_cdp_session(page))
    except PlaywrightError as error:
        if "only available in Chromium" not in error.message and "not supported" not in error.message:
            raise
        return PlaywrightChannel(page)


@cache
def _function_calling(method: str, arguments: int) -> str:
    """Return the JavaScript of a function that calls a method of the agent with a number of arguments."""
    # Strict and without spread syntax, so that functions replaced by the page never see the agent's arguments.
    parameters = ", ".join(f"a{index}" for index in range(arguments))
    return f'function({parameters}) {{ "use strict"; return this.{method}({parameters}); }}'


class CdpChannel(Channel):
    """Channel over a CDP session. Its scripts and bindings end with the session."""

    cdp: DevTools

    def __init__(self, cdp: DevTools, agent: PageObject | None = None) -> None:
        self.cdp = cdp
        self.agent = agent
        self._frames: FrameContexts | None = None

    async def install(self, script: AgentScript) -> None:
        # `inspect` of the console's command line API hands an object to the debugging session. The function exists only
        # while our script runs, before any other script; no script of the page can call it.
        script = replace(script, source=f"(agent => {{ if (agent) inspect(agent); }})({script.source})")
        contexts: FrameContexts | None = None
        if script.frames is not None:
            contexts = FrameContexts(self.cdp, script.frames, script, CdpChannel)
        self._frames = contexts
        self._listen(script, contexts)

        steps = [self.cdp.send("Target.getTargetInfo")]
        if contexts is not None:
            steps.append(contexts.attach())
        steps += installation_steps(self.cdp, script)
        # All commands are sent in this order, without waiting for each reply.
        target, *_ = await asyncio.gather(*steps)
        self.target = target["targetInfo"]
        if contexts is not None:
            # The main frame has the id of the page.
            contexts.main_frame_id = contexts.main_frame_id or self.target["targetId"]

        if script.now:
            await self._install_now(script, contexts)

    async def _install_now(self, script: AgentScript, contexts: FrameContexts | None) -> None:
        """Install the agent in the documents that are loaded already."""
        if contexts is not None:
            contexts.read_tree((await self.cdp.send("Page.getFrameTree"))["frameTree"])
        self._set_agent(await evaluate(self.cdp, script.late))
        if contexts is not None:
            await contexts.install_now()

    def _listen(self, script: AgentScript, contexts: FrameContexts | None) -> None:
        def on_binding(event: Mapping[str, Any]) -> None:
            if contexts is not None and not contexts.is_page(event["executionContextId"]):
                contexts.on_binding(event)
            elif event["name"] == script.binding:
                script.on_emit(event["payload"])

        def on_agent(event: Mapping[str, Any]) -> None:
            if contexts is not None and not contexts.is_page(event["executionContextId"]):
                contexts.on_agent(event)
            else:
                self._set_agent(event["object"])

        # Changes of the address within a document (a fragment, history.pushState) are another event, not this one.
        def on_frame_navigated(event: Mapping[str, Any]) -> None:
            if not event["frame"].get("parentId"):
                script.on_document()

        def on_cleared(_: object) -> None:
            self.agent = None

        listen(self.cdp, "Runtime.bindingCalled", on_binding)
        listen(self.cdp, "Page.frameNavigated", on_frame_navigated)
        # Both events come for each document, in this order, and before any reply from that document.
        listen(self.cdp, "Runtime.executionContextsCleared", on_cleared)
        listen(self.cdp, "Runtime.inspectRequested", on_agent)

    def _set_agent(self, remote: Mapping[str, Any]) -> None:
        self.agent = None
        if "objectId" in remote:
            self.agent = PageObject(remote["objectId"])

    async def run(self, expression: str) -> None:
        await evaluate(self.cdp, expression)

    async def find_agent(self) -> PageObject | None:
        await self.ping()
        return self.agent

    async def ping(self) -> None:
        await self.cdp.send("Runtime.evaluate", {"expression": "0"})

    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        command = {
            "objectId": agent.ref,
            "functionDeclaration": _function_calling(method, len(args)),
            "arguments": [{"objectId": arg.ref} if isinstance(arg, PageObject) else {"value": arg} for arg in args],
            "awaitPromise": True,
            "returnByValue": by_value,
        }
        reply = await self.cdp.send("Runtime.callFunctionOn", command)
        if "exceptionDetails" in reply:
            exception = reply["exceptionDetails"].get("exception", {})
            raise _page_error(method, str(exception.get("description", "?")))

        if by_value:
            return reply["result"].get("value")
        if "objectId" not in reply["result"]:
            raise _page_error(method, "it returned no object")
        return PageObject(reply["result"]["objectId"])

    async def set_file(self, element: PageObject, path: Path) -> None:
        """Choose a file in an ``<input>``. The file must be on the browser's machine."""
        await self.cdp.send("DOM.setFileInputFiles", {"objectId": element.ref, "files": [str(path)]})

    async def release_object(self, page_object: PageObject) -> None:
        await self.cdp.send("Runtime.releaseObject", {"objectId": page_object.ref})

    async def collect_garbage(self) -> None:
        await self.cdp.send("HeapProfiler.collectGarbage")

    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        options: dict[str, object] = {
            "printBackground": True,
            "transferMode": "ReturnAsStream",
            "paperWidth": A4_WIDTH,
            "paperHeight": paper_height or A4_HEIGHT,
            "preferCSSPageSize": paper_height is None,
        }
        reply = await self.cdp.send("Page.printToPDF", options)
        stream: str = reply["stream"]
        return stream

    def disconnect_frame(self, document: FrameDocument) -> None:
        if self._frames is not None:
            self._frames.disconnect_frame(document)

    async def close(self) -> None:
        if isinstance(self.cdp, CDPSession):
            await self.cdp.detach()


class PlaywrightChannel(Channel):
    """Channel over Playwright, for browsers without CDP. It leaves globals of Playwright's in the page
    (``__playwright__binding__…``). Playwright runs everything in the page's own world, so a page that replaces ``eval``
    in time can get hold of the agent. The page gains nothing by this: the agent has no privileges, and its output is
    validated (:mod:`._received`)."""

    def __init__(self, page: Page, frame: Frame | None = None, agent_at: tuple[str, str] | None = None) -> None:
        self._page = page
        self._world = frame or page.main_frame
        self._undo = contextlib.AsyncExitStack()
        # Name of a global function of the document, and the key for which it returns the agent.
        self._function, self._key = agent_at or (f"_{secrets.token_hex(8)}", secrets.token_hex(16))

    async def install(self, script: AgentScript) -> None:
        documents: _FrameDocuments | None = None
        if script.frames is not None:
            documents = _FrameDocuments(self, script.frames, self._undo)

        @listener
        def on_binding(source: Mapping[str, Any], text: object = None) -> None:
            frame = source["frame"]
            is_new_document = text == ""
            if frame != self._page.main_frame:
                if documents is not None:
                    documents.on_emit(frame, text)
            elif is_new_document:
                self.agent = None
                script.on_document()
            else:
                script.on_emit(text)

        self._undo.push_async_exit(await self._page.expose_binding(script.binding, on_binding))
        self._undo.push_async_exit(await self._page.add_init_script(self._first_script(script)))
        if script.now:
            await self.set_agent(await self._evaluate(script.late))
            if documents is not None:
                await documents.install_now(script.late)

    def _first_script(self, script: AgentScript) -> str:
        # Playwright's "framenavigated" also fires for changes of the address within a document. So each document
        # announces itself by emitting an empty text, which the agent never does.
        announce = f"globalThis[{script.binding!r}]?.('')"
        if script.frames is None:
            announce = f"if (globalThis === globalThis.top) {announce}"
        # A property that no script can replace returns the agent for the right key.
        hand_over = f"""(agent => {{
          "use strict";
          const value = key => (key === {self._key!r} ? agent : undefined);
          if (agent) Object.defineProperty(globalThis, {self._function!r}, {{ value }});
        }})({script.source})"""
        return f"{announce}; {hand_over}"

    async def _evaluate(self, expression: str) -> JSHandle:
        try:
            return await self._world.evaluate_handle(expression)
        except PlaywrightError as error:
            raise start_error(error.message) from None

    async def run(self, expression: str) -> None:
        handle = await self._evaluate(expression)
        await handle.dispose()

    def inside(self, frame: Frame) -> PlaywrightChannel:
        """Return a channel into a frame of the page."""
        return PlaywrightChannel(self._page, frame, (self._function, self._key))

    async def set_agent(self, handle: JSHandle) -> None:
        is_agent = await handle.evaluate("agent => typeof agent === 'object' && agent !== null")
        self.agent = PageObject(handle) if is_agent is True else None

    async def find_agent(self) -> PageObject | None:
        await self.set_agent(
            await self._world.evaluate_handle("args => globalThis[args[0]]?.(args[1])", [self._function, self._key])
        )
        return self.agent

    async def ping(self) -> None:
        await self._world.evaluate("0")

    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        handle: JSHandle = agent.ref
        js_args = [arg.ref if isinstance(arg, PageObject) else arg for arg in args]
        if not by_value:
            call = f"(agent, args) => {{ 'use strict'; return agent.{method}(...args); }}"
            return PageObject(await handle.evaluate_handle(call, js_args))

        # The outcome is a list of the value, or of ``null`` and what the method threw.
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
        """Choose a file in an ``<input>``. Playwright uploads it if the browser is on another machine."""
        input_element = element.ref.as_element()
        if input_element is None:
            raise _page_error("createFileInput", "it returned no element")
        await input_element.set_input_files(path)

    async def release_object(self, page_object: PageObject) -> None:
        await page_object.ref.dispose()

    async def collect_garbage(self) -> None:
        await self._page.request_gc()

    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
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


class _FrameDocuments:
    """Documents in the frames of a page. Each new document calls Playwright's binding first with an empty text.
    ``about:srcdoc`` counts as opaque."""

    def __init__(self, channel: PlaywrightChannel, watcher: FrameWatcher, undo: contextlib.AsyncExitStack) -> None:
        self._channel = channel
        self._page = channel._page
        self._watcher = watcher
        self._documents: dict[Frame, FrameDocument] = {}
        on_detached = listener(self._forget_document)
        self._page.on("framedetached", on_detached)
        undo.callback(self._page.remove_listener, "framedetached", on_detached)

    def _forget_document(self, frame: Frame) -> None:
        document = self._documents.pop(frame, None)
        if document is not None:
            self._watcher.remove_document(document)

    def on_emit(self, frame: Frame, text: object) -> None:
        if text == "":
            self._forget_document(frame)
        else:
            self._watcher.on_emit(self.document_of(frame), text)

    async def install_now(self, source: str) -> None:
        for frame in self._page.frames[1:]:
            # A frame that is just being removed raises an error.
            with contextlib.suppress(PlaywrightError):
                channel = self._channel.inside(frame)
                await channel.set_agent(await frame.evaluate_handle(source))
                self.document_of(frame).channel.agent = channel.agent

    def document_of(self, frame: Frame) -> FrameDocument:
        document = self._documents.get(frame)
        if document is None:
            origin = _origin_of(frame.url)
            same_origin = origin != OPAQUE and origin == _origin_of(self._page.url)
            document = FrameDocument(self._channel.inside(frame), origin, same_origin, frame.url)
            self._documents[frame] = document
            self._watcher.add_document(document)
        return document


def _origin_of(url: str) -> str:
    return origin_of(url) or OPAQUE


def _page_error(method: str, description: str) -> ProtocolError:
    return ProtocolError(f"the page failed in {method}: {first_line(description)}")
