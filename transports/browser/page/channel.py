"""The two ways into a page, behind one set of methods: a CDP session of its own (Chromium and its relatives), and
Playwright's own API (every browser it drives, so Firefox and WebKit too).

CDP costs half of what ``evaluate`` does per call, hands over streams, and leaves nothing to see; so it is taken
wherever it is there. No method here has a deadline: :meth:`.agent.PageAgent.bounded` is around each.
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

__all__ = ["CdpChannel", "Channel", "PlaywrightChannel", "RemoteObject", "open_channel"]


class RemoteObject:
    """An object in the page: a CDP object id, or Playwright's handle."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any) -> None:
        self.ref = ref


class Channel(ABC):
    """One page, for one agent. ``cdp`` is the page's session where there is one."""

    cdp: CDPSession | None = None

    @abstractmethod
    async def install(
        self, source: str, binding: str, *, on_emit: Callable[[str], None], on_document: Callable[[], None], now: bool
    ) -> None:
        """Run ``source`` before the first script of every later document, and ``now`` in this one too. ``binding`` is
        the global through which it emits text; ``on_document`` is called when the page begins a new document."""

    @abstractmethod
    async def agent(self, key: str) -> RemoteObject | None:
        """The agent of the document that is there; ``None`` if the page does not give it."""

    @abstractmethod
    async def invoke(self, agent: RemoteObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        """Call a method of the agent. Raises :class:`~transports.errors.ProtocolError` if it throws."""

    @abstractmethod
    async def set_file(self, element: RemoteObject, path: Path) -> None:
        """Choose a file for an ``<input type=file>``."""

    @abstractmethod
    async def forget(self, thing: RemoteObject) -> None:
        """Let the page collect an object."""

    @abstractmethod
    async def collect_garbage(self) -> None:
        """Free what the page does not refer to any more."""

    @abstractmethod
    async def pdf(self, paper_height: float | None) -> str | bytes:
        """The page as a PDF, or the name of a CDP stream of it; on paper of that height in inches, or of the size that
        the page's own rules say. Raises
        :class:`~transports.errors.UnsupportedBinary` where the browser makes none."""

    @abstractmethod
    async def close(self) -> None:
        """Take back what :meth:`install` did, as far as the page is still there."""


async def open_channel(page: Page) -> Channel:
    """The better of the ways that this page's browser has."""
    from playwright.async_api import Error

    try:
        return CdpChannel(await page.context.new_cdp_session(page))
    except Error as error:
        if "only available in Chromium" not in error.message and "not supported" not in error.message:
            raise
        return PlaywrightChannel(page)


class CdpChannel(Channel):
    """Over the page's own CDP session; what it installed ends with the session."""

    cdp: CDPSession

    def __init__(self, cdp: CDPSession) -> None:
        self.cdp = cdp

    async def install(
        self, source: str, binding: str, *, on_emit: Callable[[str], None], on_document: Callable[[], None], now: bool
    ) -> None:
        def called(event: Mapping[str, Any]) -> None:
            if event["name"] == binding:
                on_emit(event["payload"])

        def navigated(event: Mapping[str, Any]) -> None:  # a change of the address alone is another event
            if not event["frame"].get("parentId"):
                on_document()

        self.cdp.on("Runtime.bindingCalled", called)
        self.cdp.on("Page.frameNavigated", navigated)
        await self.cdp.send("Runtime.enable")
        await self.cdp.send("Runtime.addBinding", {"name": binding})
        await self.cdp.send("Page.enable")
        await self.cdp.send("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        if now:
            await self.cdp.send("Runtime.evaluate", {"expression": source})

    async def agent(self, key: str) -> RemoteObject | None:
        reply = await self.cdp.send("Runtime.evaluate", {"expression": f"globalThis.__abp_notification?.({key!r})"})
        object_id = reply["result"].get("objectId")
        return None if object_id is None else RemoteObject(object_id)

    async def invoke(self, agent: RemoteObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        reply = await self.cdp.send(
            "Runtime.callFunctionOn",
            {
                "objectId": agent.ref,
                "functionDeclaration": f"function(...args) {{ return this.{method}(...args); }}",
                "arguments": [
                    {"objectId": arg.ref} if isinstance(arg, RemoteObject) else {"value": arg} for arg in args
                ],
                "awaitPromise": True,
                "returnByValue": by_value,
            },
        )
        if "exceptionDetails" in reply:
            exception = reply["exceptionDetails"].get("exception", {})
            raise _failed(method, str(exception.get("description", "?")))
        return reply["result"].get("value") if by_value else RemoteObject(reply["result"]["objectId"])

    async def set_file(self, element: RemoteObject, path: Path) -> None:
        await self.cdp.send("DOM.setFileInputFiles", {"objectId": element.ref, "files": [str(path)]})

    async def forget(self, thing: RemoteObject) -> None:
        await self.cdp.send("Runtime.releaseObject", {"objectId": thing.ref})

    async def collect_garbage(self) -> None:
        await self.cdp.send("HeapProfiler.collectGarbage")

    async def pdf(self, paper_height: float | None) -> str | bytes:
        options: dict[str, object] = {"printBackground": True, "transferMode": "ReturnAsStream"}
        options |= {"preferCSSPageSize": True} if paper_height is None else {"paperHeight": paper_height}
        stream: str = (await self.cdp.send("Page.printToPDF", options))["stream"]
        return stream

    async def close(self) -> None:
        await self.cdp.detach()


class PlaywrightChannel(Channel):
    """Over Playwright's own API. It leaves globals of Playwright's own in the page (``__playwright__binding__…``)."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._undo = contextlib.AsyncExitStack()

    async def install(
        self, source: str, binding: str, *, on_emit: Callable[[str], None], on_document: Callable[[], None], now: bool
    ) -> None:
        def called(_: object, text: str) -> None:
            if text:
                on_emit(text)
            else:
                on_document()

        # Playwright's "framenavigated" is told for changes of the address alone too, so each document says that it
        # begins: by an empty text, which the agent never emits.
        announced = f"if (globalThis === globalThis.top) globalThis[{binding!r}]?.(''); {source}"
        self._undo.push_async_exit(await self._page.expose_binding(binding, called))
        self._undo.push_async_exit(await self._page.add_init_script(announced))
        if now:
            await self._page.evaluate(source)

    async def agent(self, key: str) -> RemoteObject | None:
        handle = await self._page.evaluate_handle("key => globalThis.__abp_notification?.(key)", key)
        given = await handle.evaluate("agent => typeof agent === 'object' && agent !== null")
        return RemoteObject(handle) if given else None

    async def invoke(self, agent: RemoteObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        handle: JSHandle = agent.ref
        given = [arg.ref if isinstance(arg, RemoteObject) else arg for arg in args]
        if not by_value:
            return RemoteObject(await handle.evaluate_handle(f"(agent, args) => agent.{method}(...args)", given))
        outcome = await handle.evaluate(
            f"async (agent, args) => {{ try {{ return [await agent.{method}(...args)]; }}"
            " catch (error) { return [null, String(error)]; } }",
            given,
        )
        if len(outcome) > 1:
            raise _failed(method, outcome[1])
        return outcome[0]

    async def set_file(self, element: RemoteObject, path: Path) -> None:
        await element.ref.as_element().set_input_files(path)

    async def forget(self, thing: RemoteObject) -> None:
        await thing.ref.dispose()

    async def collect_garbage(self) -> None:
        await self._page.request_gc()

    async def pdf(self, paper_height: float | None) -> str | bytes:
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
            ) from error

    async def close(self) -> None:
        await self._undo.aclose()


def _failed(method: str, description: str) -> ProtocolError:
    return ProtocolError(f"the page failed in {method}: {first_line(description)}")
