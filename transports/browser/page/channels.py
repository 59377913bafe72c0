"""The two channels into a page.

One is a CDP session of its own (Chromium and its relatives), the other Playwright's own API (every browser it drives,
so Firefox and WebKit too). A CDP call costs half of Playwright's ``evaluate``, can hand over streams, leaves nothing in
the page that an app could see, and holds the agent where no script can reach it, so it is preferred where it exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ProtocolError, UnsupportedBinary, first_line
from .channel import Channel, OnEmit, PageObject
from .listening import listen, listener

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, JSHandle, Page

__all__ = ["CdpChannel", "PlaywrightChannel", "open_channel"]


async def open_channel(page: Page) -> Channel:
    """Open the best channel that the page's browser offers."""
    from playwright.async_api import Error

    try:
        return CdpChannel(await page.context.new_cdp_session(page))
    except Error as error:
        if "only available in Chromium" not in error.message and "not supported" not in error.message:
            raise
        return PlaywrightChannel(page)


@cache
def _calling(method: str, arguments: int) -> str:
    # Strict, and without spreading: else functions that the page may have replaced would see the agent's arguments.
    names = ", ".join(f"a{index}" for index in range(arguments))
    return f'function({names}) {{ "use strict"; return this.{method}({names}); }}'


class CdpChannel(Channel):
    """The channel over the page's own CDP session. What it installed ends with the session."""

    cdp: CDPSession

    def __init__(self, cdp: CDPSession) -> None:
        self.cdp = cdp

    async def install(
        self, source: str, binding: str, *, on_emit: OnEmit, on_document: Callable[[], None], now: bool
    ) -> None:
        """As :meth:`Channel.install`, with a binding of the Runtime domain."""

        def on_binding(event: Mapping[str, Any]) -> None:
            if event["name"] == binding:
                on_emit(event["payload"])

        # A change of the address within a document (a fragment, history.pushState) is another event.
        def on_frame_navigated(event: Mapping[str, Any]) -> None:
            if not event["frame"].get("parentId"):
                on_document()

        listen(self.cdp, "Runtime.bindingCalled", on_binding)
        listen(self.cdp, "Page.frameNavigated", on_frame_navigated)
        # Both come for each document, in this order and before any reply out of it.
        listen(self.cdp, "Runtime.executionContextsCleared", lambda _: setattr(self, "agent", None))
        listen(self.cdp, "Runtime.inspectRequested", lambda event: self._keep(event["object"]))
        # `inspect` of the console gives an object to the debugging session. It is there while our script runs, which is
        # before any other, and for no script of the page.
        handing_over = f"(agent => {{ if (agent) inspect(agent); }})({source})"
        script = {"source": handing_over, "includeCommandLineAPI": True}
        await asyncio.gather(  # they are sent in this order, and not waited for one by one
            self.cdp.send("Runtime.enable"),
            self.cdp.send("Runtime.addBinding", {"name": binding}),
            self.cdp.send("Page.enable"),
            self.cdp.send("Page.addScriptToEvaluateOnNewDocument", script),
        )
        if now:
            self._keep((await self.cdp.send("Runtime.evaluate", {"expression": source}))["result"])

    def _keep(self, remote: Mapping[str, Any]) -> None:
        object_id = remote.get("objectId")
        self.agent = None if object_id is None else PageObject(object_id)

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
            raise _page_error(method, "it gives no object")
        return PageObject(reply["result"]["objectId"])

    async def set_file(self, element: PageObject, path: Path) -> None:
        """As :meth:`Channel.set_file`. The file must be on the browser's machine."""
        await self.cdp.send("DOM.setFileInputFiles", {"objectId": element.ref, "files": [str(path)]})

    async def release_object(self, page_object: PageObject) -> None:
        await self.cdp.send("Runtime.releaseObject", {"objectId": page_object.ref})

    async def collect_garbage(self) -> None:
        await self.cdp.send("HeapProfiler.collectGarbage")

    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """As :meth:`Channel.print_to_pdf`; returns the name of a stream of the IO domain."""
        options: dict[str, object] = {"printBackground": True, "transferMode": "ReturnAsStream"}
        options |= {"preferCSSPageSize": True} if paper_height is None else {"paperHeight": paper_height}
        stream: str = (await self.cdp.send("Page.printToPDF", options))["stream"]
        return stream

    async def close(self) -> None:
        """As :meth:`Channel.close`: detaches the session, which removes its scripts and bindings."""
        await self.cdp.detach()


class PlaywrightChannel(Channel):
    """The channel over Playwright's own API.

    It leaves globals of Playwright's in the page (``__playwright__binding__…``). Playwright runs everything in the
    page's own world, so a page that replaces ``eval`` in time can take the agent. It wins nothing by that: the agent
    has no power, and what it says is checked (:mod:`.received`).
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._undo = contextlib.AsyncExitStack()
        self._place, self._key = f"_{secrets.token_hex(8)}", secrets.token_hex(16)

    async def install(
        self, source: str, binding: str, *, on_emit: OnEmit, on_document: Callable[[], None], now: bool
    ) -> None:
        """As :meth:`Channel.install`, with a binding and an init script of Playwright's."""

        @listener
        def on_binding(_: object, text: object) -> None:
            if text != "":
                on_emit(text)
                return
            self.agent = None
            on_document()

        # Playwright's "framenavigated" also fires for changes of the address within a document. So each document
        # announces itself by emitting an empty text, which the agent never does.
        announcing = f"if (globalThis === globalThis.top) globalThis[{binding!r}]?.('')"
        # A property that no script can replace gives the agent to who knows the key.
        handing_over = f"""(agent => {{
          "use strict";
          const value = key => (key === {self._key!r} ? agent : undefined);
          if (agent) Object.defineProperty(globalThis, {self._place!r}, {{ value }});
        }})({source})"""
        self._undo.push_async_exit(await self._page.expose_binding(binding, on_binding))
        self._undo.push_async_exit(await self._page.add_init_script(f"{announcing}; {handing_over}"))
        if now:
            await self._keep(await self._page.evaluate_handle(source))

    async def _keep(self, handle: JSHandle) -> None:
        known = await handle.evaluate("agent => typeof agent === 'object' && agent !== null")
        self.agent = PageObject(handle) if known is True else None

    async def find_agent(self) -> PageObject | None:
        if self.agent is None:
            await self._keep(
                await self._page.evaluate_handle("args => globalThis[args[0]]?.(args[1])", [self._place, self._key])
            )
        return self.agent

    async def ping(self) -> None:
        await self._page.evaluate("0")

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
        raise _page_error(method, "it gives no outcome")

    async def set_file(self, element: PageObject, path: Path) -> None:
        """As :meth:`Channel.set_file`. Playwright uploads the file if the browser is on another machine."""
        input_element = element.ref.as_element()
        if input_element is None:
            raise _page_error("createFileInput", "it gives no element")
        await input_element.set_input_files(path)

    async def release_object(self, page_object: PageObject) -> None:
        await page_object.ref.dispose()

    async def collect_garbage(self) -> None:
        await self._page.request_gc()

    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """As :meth:`Channel.print_to_pdf`; returns the PDF itself."""
        from playwright.async_api import Error

        try:
            if paper_height is not None:
                return await self._page.pdf(print_background=True, width="8.5in", height=f"{paper_height}in")
            return await self._page.pdf(print_background=True, prefer_css_page_size=True)
        except Error as error:
            if "PDF" not in error.message and "not supported" not in error.message:
                raise
            raise UnsupportedBinary(
                "the app wants its page printed, and this browser makes no PDF; open it in Chromium"
            ) from None

    async def close(self) -> None:
        await self._undo.aclose()


def _page_error(method: str, description: str) -> ProtocolError:
    return ProtocolError(f"the page failed in {method}: {first_line(description)}")
