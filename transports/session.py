"""One connection to one app: initialize, call, events, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Literal, Self

from .artifacts import ArtifactStore, Scope
from .base import PageTools, Transport
from .callbacks import end
from .calls import Calls
from .capabilities import Capabilities, cautions, explained
from .detect import Found
from .discovery import Discovery, undelivered
from .errors import ABPError, CapabilityError, Disconnected, ProtocolError, TransportError, UsageError
from .events import ConnectionChanged, Event
from .inbox import Inbox, OnElicitation, OnNotification, OnProgress
from .messages import PROTOCOL_VERSION, Answer, AppInfo, Capability, Initialized, Message, parse
from .params import outgoing
from .routing import Fetcher, Result, Router, RoutingPolicy
from .schema import check_params
from .settings import Settings

__all__ = ["Session", "seconds_of"]

logger = logging.getLogger("transports")

#: Seconds that a manifest may take longer than connecting.
_LOOK = 1.0
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

    info: AppInfo
    capabilities: Capabilities

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
    ) -> None:
        self.transport = transport
        # Only what is the session's own may be removed with it.
        cleaned = store.retention and store.retention.cleanup_on_session_end and not store.scope.session
        self.store = store.scoped(Scope(session=uuid.uuid4().hex)) if cleaned else store
        self._settings = settings
        self._connect_timeout = seconds_of(timeout, settings.browser_timeout)
        self._call_timeout = seconds_of(timeout, settings.call_timeout)
        self._requested = tuple(requested_capabilities)
        self._discover = discover
        self._declared: Sequence[Capability] = ()
        self.warnings: tuple[str, ...] = ()
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
        )
        self._calls = Calls(transport, self._inbox, self._initialize)
        self._router = Router(
            self.store,
            policy=routing,
            fetcher=Fetcher(
                transport,
                timeout=settings.download_timeout / 1000,
                limit=self.store.max_bytes,
                allow_private=settings.allow_private_addresses,
            ),
        )

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise UsageError("a session is opened once; make another with connect()")
        self._state = "closed"
        deadline = time.monotonic() + self._connect_timeout
        async with contextlib.AsyncExitStack() as stack:
            looking = asyncio.ensure_future(self._discover()) if self._discover else None
            if looking is not None:
                stack.push_async_callback(end, (looking,))
            await stack.enter_async_context(self.transport)
            await stack.enter_async_context(self._inbox)
            await self._initialize(max(deadline - time.monotonic(), 1.0))
            if looking is not None:
                await self._informed(looking)
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

    async def _initialize(self, timeout: float) -> None:
        params: dict[str, object] = {
            "agent": {"name": "abp-transports", "version": _version()},
            "protocolVersion": PROTOCOL_VERSION,
            "features": {"notifications": True, "progress": True, "elicitation": True},
        }
        if self._requested:
            params["requestedCapabilities"] = list(self._requested)
        reply = await self.transport.request(Message("initialize", params), timeout=timeout)
        payload = reply.payload
        if isinstance(payload, dict) and payload.get("success") is False:
            parse(Answer, payload, "the app's answer to initialize").raise_for_error("initialize")
        if isinstance(payload, dict) and isinstance(payload.get("data"), dict) and "sessionId" not in payload:
            payload = payload["data"]  # some apps wrap it like a call's answer
        initialized = parse(Initialized, payload, "the app's answer to initialize")
        self.info = initialized.app
        self.session_id = initialized.session_id
        listed = await self._list() if self.transport.features.listing else None
        self.capabilities = Capabilities().told(initialized.capabilities).told(listed).informed(self._declared)

    async def _informed(self, looking: asyncio.Future[Discovery]) -> None:
        """The manifest informs (PROTOCOL "Discovery"): it fills in what the app did not say at run time."""
        await asyncio.wait((looking,), timeout=_LOOK)
        if not looking.done():  # must not hold up who has connected already
            await end((looking,))
            return
        found = looking.result()
        if found.manifest is None:  # many apps have none: worth a note, not a line on everybody's terminal
            self.warnings = (f"connected without a manifest: {found.reason.message if found.reason else ''}",)
            return
        self._declared = found.manifest.capabilities
        self.warnings = (*found.warnings, *undelivered(self._declared, self.capabilities))
        self.capabilities = self.capabilities.informed(self._declared)
        for note in self.warnings:
            logger.warning("%s", note)

    async def _list(self) -> object:
        """What ``listCapabilities`` says; an app without it, or whose list is wrapped or empty, is not refused."""
        try:
            reply = await self.transport.request(Message("capabilities/list"), timeout=self._connect_timeout)
        except ProtocolError as error:
            logger.warning("the app could not list its capabilities: %s", error.message)
            return None
        return reply.payload

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

        ``params`` are JSON values; ``bytes``, :class:`pathlib.Path` and :class:`~transports.binary.BinaryData` may
        stand anywhere in them. ``timeout`` in seconds is for the app's answer. Cancelling the awaiting task cancels the
        call in the app.

        What the app refused before it ran (``RATE_LIMITED``, a session it has forgotten) is sent again within
        ``timeout``, after the time the app asks for. A call that may have run (the connection broke, any other
        ``retryable`` error) is sent again only if the caller says that it is ``idempotent``. Where the transport
        reconnects by itself, a call waits for that. Every repetition is a :class:`~transports.events.Retrying` event.

        ``call_id`` names the call in events and in what it stores; nobody else's call may have it. Without one it gets
        one.

        Raises :class:`~transports.errors.UsageError` if the parameters do not fit the capability's schema,
        :class:`~transports.errors.CapabilityError` if the app says no, :class:`~transports.errors.CallTimeout`,
        :class:`~transports.errors.BinaryError` if content is not what it was said to be (its ``result`` holds what was
        stored all the same), and other :class:`~transports.errors.ABPError`.
        """
        self._require_open()
        seconds = self._call_timeout if timeout is None else seconds_of(timeout, 0)
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
        payload: dict[str, object] = {"capability": capability, "params": prepared}
        try:
            reply, answer = await self._calls.answered(
                call, capability, payload, content, timeout=seconds, on_progress=on_progress, idempotent=idempotent
            )
        except CapabilityError as error:
            raise explained(error, capability, self.capabilities) from None
        try:
            return await self._router.route(
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
        finally:
            await self._inbox.settle(on_progress)

    async def render_to_pdf(self, /, html: str, *, timeout: float | None = None, **options: object) -> Result:
        """``html`` as a PDF, stored as the artifact ``document``; only for apps in a page. ``options`` are those of
        Playwright's ``page.pdf`` (``format="A4"``, ``landscape=True``, …). Raises
        :class:`~transports.errors.UsageError` where there is no page or such option, and
        :class:`~transports.errors.CallTimeout` after ``timeout`` seconds."""
        seconds, tools = self._tools("render_to_pdf", timeout)
        return await self._stored("render_to_pdf", "document", tools.render_to_pdf(html, options, timeout=seconds))

    async def screenshot(self, /, *, timeout: float | None = None, **options: object) -> Result:
        """What the app's page shows, stored as the artifact ``image``; only for apps in a page. ``options`` are those
        of Playwright's ``page.screenshot`` (``full_page=True``, ``type="jpeg"``, …). Raises as
        :meth:`render_to_pdf`."""
        seconds, tools = self._tools("screenshot", timeout)
        return await self._stored("screenshot", "image", tools.screenshot(options, timeout=seconds))

    def _tools(self, what: str, timeout: float | None) -> tuple[float, PageTools]:
        self._require_open()
        if not isinstance(self.transport, PageTools):
            raise UsageError(f"{what} needs an app in a page; this one is reached by {self.transport.name}")
        return self._call_timeout if timeout is None else seconds_of(timeout, 0), self.transport

    async def _stored(self, what: str, field: str, content: Awaitable[object]) -> Result:
        call, started = str(uuid.uuid4()), time.perf_counter()

        async def work() -> Result:
            data = {field: await content}
            source = self._source(call)
            return await self._router.route(
                data, capability=what, source=source, transport=self.transport.name, started=started
            )

        return await self._calls.told(call, what, work())

    def _source(self, call: str) -> dict[str, object]:
        return {"app": self.info.id or self.info.name, "call": call}

    def _require_open(self) -> None:
        if self._state == "closed":
            raise Disconnected("the session is closed; connect again")
        if self._state == "new":
            raise UsageError("the session is not open; use it as `async with connect(…) as app`")

    def _checked(self, capability: Capability, params: object, content: Sequence[Found]) -> list[str]:
        """What the caller should be told, each thing once; raises if the parameters do not fit."""
        notes = check_params(capability.name, capability.input_schema, params, [found.path for found in content])
        new = [note for note in (*cautions(capability), *notes) if note not in self._cautioned]
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
        before = self.capabilities
        try:
            await self._initialize(self._connect_timeout)
        except ABPError as error:
            logger.warning("reconnected, but the app refused to begin again: %s", error.message)
            return
        self._calls.ready.set()
        self._inbox.tell(ConnectionChanged(True, reason))
        self._tell_difference(before)

    async def _capabilities_changed(self, change: object) -> None:
        before = self.capabilities
        after = before.changed(change)
        if self.transport.features.listing:
            with contextlib.suppress(TransportError):
                listed = await self._list()
                if now := Capabilities().told(listed):
                    after = after.told(listed).kept(now)
        self.capabilities = after.informed(self._declared)
        self._tell_difference(before)

    def _tell_difference(self, before: Capabilities) -> None:
        change = self.capabilities.since(before)
        if change.added or change.removed or change.changed:
            self._inbox.tell(change)


def _version() -> str:
    try:
        return importlib.metadata.version("abp-transports")
    except importlib.metadata.PackageNotFoundError:
        return "0"
