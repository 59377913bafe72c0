"""The two channels into a page, behind one set of methods.

One is a CDP session of its own (Chromium and its relatives), the other Playwright's own API (every browser it drives,
so Firefox and WebKit too). A CDP call costs half of Playwright's ``evaluate``, can hand over streams, and leaves
nothing in the page that an app could see, so it is preferred where it exists. No method here has a deadline: callers
wrap each in :meth:`PageAgent.with_deadline <transports.browser.page.agent.PageAgent.with_deadline>`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ProtocolError, UnsupportedBinary, first_line

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, JSHandle, Page

__all__ = ["CdpChannel", "Channel", "PageObject", "PlaywrightChannel", "open_channel"]


class PageObject:
    """A reference to an object in the page: a CDP object id, or Playwright's handle."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any) -> None:
        self.ref = ref


class Channel(ABC):
    """The channel to one page, used by one agent. ``cdp`` is the page's CDP session where there is one."""

    cdp: CDPSession | None = None

    @abstractmethod
    async def install(
        self, source: str, binding: str, *, on_emit: Callable[[str], None], on_document: Callable[[], None], now: bool
    ) -> None:
        """Run ``source`` before the first script of every later document, and with ``now`` in the current one too.

        The script emits text through the global function ``binding``, which calls ``on_emit``. ``on_document`` is
        called when the page begins a new document.
        """

    @abstractmethod
    async def find_agent(self, key: str) -> PageObject | None:
        """Return the agent of the current document, or ``None`` if the page does not give it to us.

        ``key`` is the secret that the agent was installed with.
        """

    @abstractmethod
    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        """Call a method of the agent. Raises :class:`~transports.errors.ProtocolError` if it throws."""

    @abstractmethod
    async def set_file(self, element: PageObject, path: Path) -> None:
        """Choose a local file for an ``<input type=file>``."""

    @abstractmethod
    async def release_object(self, page_object: PageObject) -> None:
        """Let the page collect an object as garbage."""

    @abstractmethod
    async def collect_garbage(self) -> None:
        """Free the memory of objects that the page no longer refers to."""

    @abstractmethod
    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """Print the page; return the PDF, or the name of a CDP stream of it.

        ``paper_height`` is in inches; with ``None`` the page's own ``@page`` rules decide. Raises
        :class:`~transports.errors.UnsupportedBinary` if the browser makes no PDF.
        """

    @abstractmethod
    async def close(self) -> None:
        """Undo :meth:`install`, as far as the page is still there."""


async def open_channel(page: Page) -> Channel:
    """Open the best channel that the page's browser offers."""
    from playwright.async_api import Error

    try:
        return CdpChannel(await page.context.new_cdp_session(page))
    except Error as error:
        if "only available in Chromium" not in error.message and "not supported" not in error.message:
            raise
        return PlaywrightChannel(page)


class CdpChannel(Channel):
    """The channel over the page's own CDP session. What it installed ends with the session."""

    cdp: CDPSession

    def __init__(self, cdp: CDPSession) -> None:
        self.cdp = cdp

    async def install(
        self, source: str, binding: str, *, on_emit: Callable[[str], None], on_document: Callable[[], None], now: bool
    ) -> None:
        """As :meth:`Channel.install`, with a binding of the Runtime domain."""

        def on_binding(event: Mapping[str, Any]) -> None:
            if event["name"] == binding:
                on_emit(event["payload"])

        # A change of the address within a document (a fragment, history.pushState) is another event.
        def on_frame_navigated(event: Mapping[str, Any]) -> None:
            if not event["frame"].get("parentId"):
                on_document()

        self.cdp.on("Runtime.bindingCalled", on_binding)
        self.cdp.on("Page.frameNavigated", on_frame_navigated)
        await self.cdp.send("Runtime.enable")
        await self.cdp.send("Runtime.addBinding", {"name": binding})
        await self.cdp.send("Page.enable")
        await self.cdp.send("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        if now:
            await self.cdp.send("Runtime.evaluate", {"expression": source})

    async def find_agent(self, key: str) -> PageObject | None:
        reply = await self.cdp.send("Runtime.evaluate", {"expression": f"globalThis.__abp_notification?.({key!r})"})
        object_id = reply["result"].get("objectId")
        return None if object_id is None else PageObject(object_id)

    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        reply = await self.cdp.send(
            "Runtime.callFunctionOn",
            {
                "objectId": agent.ref,
                "functionDeclaration": f"function(...args) {{ return this.{method}(...args); }}",
                "arguments": [{"objectId": arg.ref} if isinstance(arg, PageObject) else {"value": arg} for arg in args],
                "awaitPromise": True,
                "returnByValue": by_value,
            },
        )
        if "exceptionDetails" in reply:
            exception = reply["exceptionDetails"].get("exception", {})
            raise _page_error(method, str(exception.get("description", "?")))
        return reply["result"].get("value") if by_value else PageObject(reply["result"]["objectId"])

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

    It leaves globals of Playwright's in the page (``__playwright__binding__…``).
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._undo = contextlib.AsyncExitStack()

    async def install(
        self, source: str, binding: str, *, on_emit: Callable[[str], None], on_document: Callable[[], None], now: bool
    ) -> None:
        """As :meth:`Channel.install`, with a binding and an init script of Playwright's."""

        def on_binding(_: object, text: str) -> None:
            if text:
                on_emit(text)
            else:
                on_document()

        # Playwright's "framenavigated" also fires for changes of the address within a document. So each document
        # announces itself by emitting an empty text, which the agent never does.
        announcing = f"if (globalThis === globalThis.top) globalThis[{binding!r}]?.(''); {source}"
        self._undo.push_async_exit(await self._page.expose_binding(binding, on_binding))
        self._undo.push_async_exit(await self._page.add_init_script(announcing))
        if now:
            await self._page.evaluate(source)

    async def find_agent(self, key: str) -> PageObject | None:
        handle = await self._page.evaluate_handle("key => globalThis.__abp_notification?.(key)", key)
        js_args = await handle.evaluate("agent => typeof agent === 'object' && agent !== null")
        return PageObject(handle) if js_args else None

    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        handle: JSHandle = agent.ref
        js_args = [arg.ref if isinstance(arg, PageObject) else arg for arg in args]
        if not by_value:
            return PageObject(await handle.evaluate_handle(f"(agent, args) => agent.{method}(...args)", js_args))
        outcome = await handle.evaluate(
            f"async (agent, args) => {{ try {{ return [await agent.{method}(...args)]; }}"
            " catch (error) { return [null, String(error)]; } }",
            js_args,
        )
        if len(outcome) > 1:
            raise _page_error(method, outcome[1])
        return outcome[0]

    async def set_file(self, element: PageObject, path: Path) -> None:
        """As :meth:`Channel.set_file`. Playwright uploads the file if the browser is on another machine."""
        await element.ref.as_element().set_input_files(path)

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
