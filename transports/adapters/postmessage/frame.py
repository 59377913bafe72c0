"""The embedded app's frame, as the debugger sees it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...browser.effects.page_effects import PageEffects
from ...browser.page.agent import PageAgent
from ...browser.page.listening import listen, listener
from ...errors import Disconnected, ProtocolError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame

__all__ = ["AppFrame"]


class AppFrame:
    """The frame of an app, in a process of its own or in that of the harness.

    An app of another site than the harness has a process of its own, and with it a debugging session. One of the same
    site is a part of the harness's page: there the session is one with the page, and scripts run in one of its
    contexts.
    """

    def __init__(self, agent: PageAgent, session: CDPSession, timeout: float) -> None:
        self._agent = agent
        self._session = session
        self._timeout = timeout
        self._shared = False
        self._context: dict[str, Any] = {}

    @classmethod
    async def open(cls, frame: Frame, agent: PageAgent, effects: PageEffects, *, timeout: float) -> AppFrame | None:
        """Return the frame, watched for crashes and side effects; ``None`` if the browser cannot do it."""
        from playwright.async_api import Error

        if agent.channel.cdp is None:
            return None
        context = frame.page.context
        with contextlib.suppress(Error):
            try:
                own = cls(agent, await context.new_cdp_session(frame), timeout)
            except Error:  # it has no process of its own
                own = cls(agent, await context.new_cdp_session(frame.page), timeout)
                if not await own._enter():
                    return None
            else:
                crashed = Disconnected("the embedded app's process crashed")
                listen(own._session, "Inspector.targetCrashed", lambda _: agent.mark_lost(crashed))
                await own._session.send("Inspector.enable")
            await effects.watch_frame(own._session, own._context, shared=own._shared)
            return own
        return None

    async def _enter(self) -> bool:
        """Find the context of the app's scripts among those of the page. Returns ``False`` if there is none."""
        self._shared = True
        contexts: list[dict[str, Any]] = []
        note = listener(lambda event: contexts.append(event["context"]))
        self._session.on("Runtime.executionContextCreated", note)
        await self._session.send("Runtime.enable")  # tells of each context before it returns
        self._session.remove_listener("Runtime.executionContextCreated", note)
        await self._session.send("Runtime.disable")  # the console of the app would be sent here too
        tree = await self._session.send("Page.getFrameTree")
        children = [child["frame"]["id"] for child in tree["frameTree"].get("childFrames", ())]
        for context in contexts:
            data = context.get("auxData", {})
            if data.get("isDefault") and data.get("frameId") in children[:1]:
                self._context = {"uniqueContextId": context["uniqueId"]}
        return bool(self._context)

    async def send(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        """Send a command to the frame's session, within the time for opening."""
        sent = self._session.send(method, params)
        reply: dict[str, Any] = await self._agent.with_deadline(sent, method, timeout=self._timeout)
        return reply

    async def height(self) -> float:
        """Return the height of the app's content in CSS pixels. Raises :class:`~transports.errors.ProtocolError`."""
        if not self._shared:
            metrics = await self.send("Page.getLayoutMetrics", {})
            return float(metrics["cssContentSize"]["height"])
        expression = "document.documentElement.scrollHeight"
        measured = await self.send(
            "Runtime.evaluate", {"expression": expression, "returnByValue": True, **self._context}
        )
        height = measured["result"].get("value")
        if not isinstance(height, (int, float)):
            raise ProtocolError("the embedded app hides how tall it is")
        return float(height)
