"""One connection to one app: initialize, call, events, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from ..artifacts import ArtifactRef, ArtifactStore, Scope
from ..base import PageTools, Transport
from ..binary.detect import Found
from ..binary.params import outgoing
from ..errors import ABPError, CapabilityError, Disconnected, UsageError
from ..http import Discovery
from ..protocol.capabilities import Capabilities, deprecation_warnings, with_suggestions
from ..protocol.declarations import AppInfo, Capability
from ..protocol.messages import Message
from ..protocol.schema import check_params
from ..routing import ABP, Fetcher, Result, Router, RoutingPolicy, preset
from ..tasks import cancel_and_wait
from .calls import Calls
from .events import ConnectionChanged, Event
from .handshake import Introduction
from .inbox import Inbox, OnElicitation, OnNotification, OnProgress
from .resources import Resources
from .settings import Settings

__all__ = ["Session", "seconds_of"]

logger = logging.getLogger("transports")

#: Seconds for saying goodbye.
_GOODBYE = 1.0


def seconds_of(timeout: float | None, default: float) -> float:
    """A caller's ``timeout``, or ``default`` in milliseconds."""
    if timeout is None:
        return default / 1000
    if not (math.isfinite(timeout) and timeout > 0):
        raise UsageError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return timeout


class Session:
    """An app that is connected. Once the session is open, ``info`` and ``capabilities`` (by name) are what it said of
    itself, and ``warnings`` what was odd about that."""

    def __init__(
        self,
        transport: Transport,
        *,
        store: ArtifactStore,
        settings: Settings,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        on_elicitation: OnElicitation | None = None,
        requested_capabilities: Sequence[str] = (),
        routing: RoutingPolicy | None = None,
        discover: Callable[[], Awaitable[Discovery]] | None = None,
        close_store: bool = False,
    ) -> None:
        self.transport = transport
        # Only what is the session's own may be removed with it.
        cleaned = store.retention and store.retention.cleanup_on_session_end and not store.scope.session
        self.store = store.scoped(Scope(session=uuid.uuid4().hex)) if cleaned else store
        self._settings = settings
        self._connect_timeout = seconds_of(timeout, settings.browser_timeout)
        self._call_timeout = seconds_of(timeout, settings.call_timeout)
        self._discover = discover
        self._close_store = close_store
        self._state: Literal["new", "open", "closed"] = "new"
        self._cautioned: set[str] = set()
        self._stack = contextlib.AsyncExitStack()
        self._inbox = Inbox(
            transport,
            on_progress=on_progress,
            on_notification=on_notification,
            on_elicitation=on_elicitation,
            changed=self._capabilities_changed,
            lost=self._lost,
            restored=self._restored,
            noticed=lambda notification: self.resources.noticed(notification),
        )
        self._routing = routing
        #: The resources of an MCP server.
        self.resources = Resources(transport, self.store, self._stored, (routing or ABP).resources, self._seconds)
        self._app = Introduction(
            transport, requested_capabilities, self.resources.generated, patience=self._connect_timeout
        )
        self._calls = Calls(transport, self._inbox, self._app.greet)
        self._follow(routing or ABP)

    def _follow(self, policy: RoutingPolicy) -> None:
        """What becomes of an answer's parts from now on."""
        self._router = Router(
            self.store,
            policy=policy,
            fetcher=Fetcher(
                self.transport,
                timeout=self._settings.download_timeout / 1000,
                limit=self.store.max_bytes,
                allow_private=self._settings.allow_private_addresses,
            ),
        )
        self.resources.policy = policy.resources

    @property
    def info(self) -> AppInfo:
        return self._app.info

    @property
    def session_id(self) -> str:
        """The app's name for this session."""
        return self._app.session_id

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        return self._app.capabilities

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._app.warnings

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise UsageError("a session is opened once; make another with connect()")
        self._state = "closed"
        deadline = time.monotonic() + self._connect_timeout
        async with contextlib.AsyncExitStack() as stack:
            if self._close_store:
                stack.push_async_callback(self.store.aclose)
            looking = asyncio.ensure_future(self._discover()) if self._discover else None
            if looking is not None:
                stack.push_async_callback(cancel_and_wait, (looking,))
            await stack.enter_async_context(self.transport)
            await stack.enter_async_context(self._inbox)
            await self._app.greet(max(deadline - time.monotonic(), 1.0))
            if self._routing is None and self.transport.features.presets:
                self._follow(preset(self.info.id))
            if looking is not None:
                await self._app.inform(looking)
            self._calls.ready.set()
            stack.push_async_callback(self.store.end_session)
            stack.push_async_callback(self._shutdown)
            self._stack = stack.pop_all()
        self._state = "open"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Say goodbye to the app and close the transport; idempotent."""
        self._state = "closed"
        await self._stack.aclose()

    async def _shutdown(self) -> None:
        with contextlib.suppress(ABPError, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self.transport.notify(Message("shutdown", {"reason": "the client is done"}))

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        capability: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        idempotent: bool = False,
        call_id: str | None = None,
    ) -> Result:
        """Call a capability and store what it answers.

        ``params`` are JSON values; ``bytes``, :class:`pathlib.Path` and :class:`~transports.BinaryData` may
        stand anywhere in them. ``timeout`` in seconds is for the app's answer. Cancelling the awaiting task cancels the
        call in the app.

        What the app refused before it ran (``RATE_LIMITED``, a session it has forgotten) is sent again within
        ``timeout``, after the time the app asks for. A call that may have run (the connection broke, any other
        ``retryable`` error) is sent again only if the caller says that it is ``idempotent``. Where the transport
        reconnects by itself, a call waits for that. Every repetition is a :class:`~transports.Retrying` event.

        ``call_id`` names the call in events and in what it stores; nobody else's call may have it. Without one it gets
        one.

        Raises :class:`~transports.errors.UsageError` if the parameters do not fit the capability's schema,
        :class:`~transports.errors.CapabilityError` if the app says no, :class:`~transports.errors.CallTimeout`,
        :class:`~transports.errors.BinaryError` if content is not what it was said to be (its ``result`` holds what was
        stored all the same), and other :class:`~transports.errors.ABPError`.
        """
        self._require_open()
        seconds = self._seconds(timeout)
        call = call_id or str(uuid.uuid4())
        work = self._call(call, capability, params, seconds, on_progress, idempotent)
        return await self._calls.told(call, capability, work)

    async def _call(
        self,
        call: str,
        capability: str,
        params: Mapping[str, object] | None,
        seconds: float,
        on_progress: OnProgress | None,
        idempotent: bool,
    ) -> Result:
        started = time.perf_counter()
        prepared, content = outgoing(dict(params or {}))
        known = self.capabilities.get(capability)
        warnings = self._checked(known, prepared, content) if known else []
        if capability in self.resources.names:
            return await self.resources.call(capability, params or {}, seconds)
        payload: dict[str, object] = {"capability": capability, "params": prepared}
        try:
            reply, answer = await self._calls.answered(
                call, capability, payload, content, timeout=seconds, on_progress=on_progress, idempotent=idempotent
            )
        except CapabilityError as error:
            raise with_suggestions(error, capability, self._app.capabilities) from None
        try:
            result = await self._router.route(
                answer.data,
                capability=capability,
                outputs=reply.outputs,
                effects=reply.effects,
                source=self._source(call),
                warnings=[*warnings, *reply.warnings],
                schema=known.output_schema if known else None,
                transport=self.transport.name,
                started=started,
            )
            return await self.resources.followed(result)
        finally:
            await self._inbox.settle(on_progress)

    async def save(self, artifact: ArtifactRef | str, path: str | os.PathLike[str]) -> Path:
        """Copy an artifact of this session, a reference or an id, from any store to ``path``.

        Returns the absolute path. It works after the session is closed, too. Missing folders are made, an existing file
        is replaced, and the content is verified while it is copied; see :meth:`.ArtifactStore.export` for the errors.
        """
        return await self.store.export(artifact, path)

    async def render_to_pdf(self, /, html: str, *, timeout: float | None = None, **options: object) -> Result:
        """``html`` as a PDF, stored as the artifact ``document``; only for apps in a page. ``options`` are those of
        Playwright's ``page.pdf`` (``format="A4"``, ``landscape=True``, …). Raises
        :class:`~transports.errors.UsageError` where there is no page or such option, and
        :class:`~transports.errors.CallTimeout` after ``timeout`` seconds."""
        seconds, tools = self._tools("render_to_pdf", timeout)
        return await self._made("render_to_pdf", "document", tools.render_to_pdf(html, options, timeout=seconds))

    async def screenshot(self, /, *, timeout: float | None = None, **options: object) -> Result:
        """What the app's page shows, stored as the artifact ``image``; only for apps in a page. ``options`` are those
        of Playwright's ``page.screenshot`` (``full_page=True``, ``type="jpeg"``, …). Raises as
        :meth:`render_to_pdf`."""
        seconds, tools = self._tools("screenshot", timeout)
        return await self._made("screenshot", "image", tools.screenshot(options, timeout=seconds))

    def _tools(self, what: str, timeout: float | None) -> tuple[float, PageTools]:
        self._require_open()
        if not isinstance(self.transport, PageTools):
            raise UsageError(f"{what} needs an app in a page; this one is reached by {self.transport.name}")
        return self._seconds(timeout), self.transport

    def _seconds(self, timeout: float | None) -> float:
        return self._call_timeout if timeout is None else seconds_of(timeout, 0)

    async def _made(self, what: str, field: str, content: Awaitable[object]) -> Result:
        call, started = str(uuid.uuid4()), time.perf_counter()

        async def work() -> Result:
            return await self._stored({field: await content}, what, started, call)

        return await self._calls.told(call, what, work())

    async def _stored(self, data: object, capability: str, started: float, call: str = "") -> Result:
        return await self._router.route(
            data, capability=capability, source=self._source(call), transport=self.transport.name, started=started
        )

    def _source(self, call: str) -> dict[str, object]:
        return {"app": self.info.id or self.info.name, **({"call": call} if call else {})}

    def _require_open(self) -> None:
        if self._state == "closed":
            raise Disconnected("the session is closed; connect again")
        if self._state == "new":
            raise UsageError("the session is not open; use it as `async with connect(…) as app`")

    def _checked(self, capability: Capability, params: object, content: Sequence[Found]) -> list[str]:
        """What the caller should be told, each thing once; raises if the parameters do not fit."""
        notes = check_params(capability.name, capability.input_schema, params, [found.path for found in content])
        new = [note for note in (*deprecation_warnings(capability), *notes) if note not in self._cautioned]
        self._cautioned.update(new)
        return new

    # --- events -------------------------------------------------------------------------------------------------------

    def events(self) -> AsyncIterator[Event]:
        """What happens from now on, to be used as ``async for event in app.events()``: calls and their progress,
        notifications, questions (answered by the handler, not here), repetitions, changes of the connection and of the
        capabilities. Ends when the session closes. Any number may listen."""
        return self._inbox.listeners.listen()

    def _lost(self, reason: str) -> None:
        self._calls.ready.clear()
        self._inbox.tell(ConnectionChanged(False, reason))

    async def _restored(self, reason: str) -> None:
        """After a reconnection the app knows nothing of us: say hello again, then let calls through."""
        before = self._app.capabilities
        try:
            await self._app.greet(self._connect_timeout)
        except ABPError as error:
            logger.warning("reconnected, but the app refused to begin again: %s", error.message)
            return
        await self.resources.restored()
        self._calls.ready.set()
        self._inbox.tell(ConnectionChanged(True, reason))
        self._tell_difference(before)

    async def _capabilities_changed(self, change: object) -> None:
        before = self._app.capabilities
        await self._app.change(change)
        self._tell_difference(before)

    def _tell_difference(self, before: Capabilities) -> None:
        change = self._app.capabilities.diff(before)
        if change.added or change.removed or change.changed:
            self._inbox.tell(change)
