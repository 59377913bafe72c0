"""The state of a session's connection: lost, restored, and what the app can do since."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING

from ..base import Transport
from ..binary.detect import Found
from ..errors import ABPError, ProtocolError, TransportError, UsageError
from ..privacy import placeholder_paths
from ..protocol import MANY, Capabilities, deprecation_warnings, is_long
from ..protocol.messages import Message, initialize_params
from ..protocol.schema import check_params, unnamed_params
from ..tasks import backoff_delay, cancel_and_wait
from ..telemetry import traced
from ._events import ConnectionChanged

if TYPE_CHECKING:
    from ..http import Discovery
    from ..protocol import AppInfo, Capability
    from ._events import Event

#: Seconds that the manifest may still take once the app is initialized; then the session opens without it.
_MANIFEST_WAIT = 1.0


class Handshake:
    """What an app says of itself.

    ``info``, ``session_id`` and ``capabilities`` are the app's latest words; ``warnings`` are about its manifest.
    ``generate`` adds the capabilities that this side answers; ``list_timeout`` in seconds is for ``listCapabilities``.
    """

    info: AppInfo
    session_id: str

    def __init__(
        self,
        transport: Transport,
        requested: Sequence[str],
        generate: Callable[[Capabilities], Capabilities],
        *,
        list_timeout: float,
    ) -> None:
        self._transport = transport
        self._requested = tuple(requested)
        self._generate = generate
        self._list_timeout = list_timeout
        self._in_manifest: Sequence[Capability] = ()
        self._warned: set[str] = set()
        self.capabilities = Capabilities()
        self.warnings: tuple[str, ...] = ()

    async def initialize(self, timeout: float) -> None:
        """Send ``initialize``, for at most ``timeout`` seconds, and read the list of capabilities.

        Raises what the transport raises, and :class:`~transports.errors.CapabilityError` if the app refuses.
        """
        from ..protocol import (
            Answer,
            Initialized,
            parse,  # late, as they load pydantic
        )

        params = initialize_params(capabilities=self._requested)
        greeting = self._transport.request(Message("initialize", params), timeout=timeout)
        reply = await traced(greeting, "abp.initialize", {"abp.transport": self._transport.name}, "client")
        payload = reply.payload
        if isinstance(payload, dict) and payload.get("success") is False:
            parse(Answer, payload, "the app's answer to initialize").raise_for_error("initialize")
        if isinstance(payload, dict) and isinstance(payload.get("data"), dict) and "sessionId" not in payload:
            payload = payload["data"]  # some apps wrap it like a call's answer
        initialized = parse(Initialized, payload, "the app's answer to initialize")
        self.info = initialized.app
        self.session_id = initialized.session_id
        listed = await self._list_capabilities() if self._transport.features.listing else None

        def read() -> Capabilities:
            declared = Capabilities().merge(initialized.capabilities).merge(listed)
            return self._generate(declared.with_manifest(self._in_manifest))

        self.capabilities = await _run(read, apart=is_long(initialized.capabilities) or is_long(listed))

    async def apply_manifest(self, discovery: asyncio.Future[Discovery]) -> None:
        """Fill in from the manifest what the app did not say at run time (docs/protocol.md 7.5)."""
        await asyncio.wait((discovery,), timeout=_MANIFEST_WAIT)
        if not discovery.done():  # a slow web server must not hold up a session that is connected already
            await cancel_and_wait((discovery,))
            return
        from ..http import missing_capabilities

        found = discovery.result()
        if found.manifest is None:  # many apps have none: worth a note, not a line on everybody's terminal
            self.warnings = (f"connected without a manifest: {found.reason.message if found.reason else ''}",)
            return
        self._in_manifest = found.manifest.capabilities
        self.warnings = (*found.warnings, *missing_capabilities(self._in_manifest, self.capabilities))
        self.capabilities = self.capabilities.with_manifest(self._in_manifest)
        for warning in self.warnings:
            logger.warning("%s", warning)

    async def apply_changes(self, changes: Iterable[object]) -> None:
        """Update ``capabilities`` after the app said that they changed: each ``{added, removed, changed}``, or less.

        Where the transport can list them, the new list decides.
        """
        listed: object = None
        if self._transport.features.listing:
            with contextlib.suppress(TransportError):
                listed = await self._list_capabilities()
        before = self.capabilities

        def read() -> Capabilities:
            capabilities = before
            for change in changes:
                capabilities = capabilities.apply_change(change)
            if now := Capabilities().merge(listed):
                capabilities = capabilities.merge(listed).only(now)
            return self._generate(capabilities.with_manifest(self._in_manifest))

        self.capabilities = await _run(read, apart=len(before) > MANY or is_long(listed))

    def check_params(self, capability: Capability, params: object, content: Sequence[Found]) -> list[str]:
        """Return the warnings about a call: those that this session has not given yet, and which parameters the
        capability's ``inputSchema`` does not name.

        ``content`` is what stands for files and buffers in ``params``; it fits any schema, as do names of secrets.
        Raises :class:`~transports.errors.UsageError` if the parameters do not fit the capability's ``inputSchema``.
        """
        if not (capability.input_schema or capability.deprecated or capability.experimental):
            return []
        places = [found.path for found in content]
        try:
            notes = check_params(capability.name, capability.input_schema, params, places)
        except UsageError:
            if not (unresolved := list(placeholder_paths(params))):
                raise
            # the app checks the value itself; this side has only its name
            notes = check_params(capability.name, capability.input_schema, params, places + unresolved)
        new = [note for note in (*deprecation_warnings(capability), *notes) if note not in self._warned]
        self._warned.update(new)
        return [*new, *(f"{capability.name}: {hint}" for hint in unnamed_params(capability.input_schema, params))]

    async def _list_capabilities(self) -> object:
        """Return the payload of ``listCapabilities``, ``None`` if the app has no such method: that is allowed."""
        try:
            reply = await self._transport.request(Message("capabilities/list"), timeout=self._list_timeout)
        except ProtocolError as error:
            logger.warning("the app could not list its capabilities: %s", error.message)
            return None
        return reply.payload


async def _run(work: Callable[[], Capabilities], *, apart: bool) -> Capabilities:
    """Do work on lists of capabilities, ``apart`` from the event loop where they are long."""
    return await asyncio.to_thread(work) if apart else work()


logger = logging.getLogger("transports")

#: Changes of the capabilities that wait while a list is read. Then the oldest are left to the list, which has them.
_MAX_CHANGES = 1000


class Connection:
    """Keeps the handshake valid while the transport loses and regains its connection.

    ``ready`` is set while the transport is connected and the app initialized; calls wait for it. ``timeout`` in seconds
    is for a new handshake, after which ``resubscribe`` renews what the app has forgotten.
    """

    def __init__(
        self,
        handshake: Handshake,
        *,
        timeout: float,
        resubscribe: Callable[[], Awaitable[None]],
        emit: Callable[[Event], None],
    ) -> None:
        self.ready = asyncio.Event()
        #: Why the connection was lost the last time.
        self.reason = ""
        self._losses = 0
        self._changes: deque[object] = deque(maxlen=_MAX_CHANGES)
        self._refreshing = False
        self._handshake = handshake
        self._timeout = timeout
        self._resubscribe = resubscribe
        self._emit = emit

    def lost(self, reason: str) -> None:
        """Hold calls back until the connection is restored."""
        self.reason = reason
        self._losses += 1
        self.ready.clear()
        self._emit(ConnectionChanged(False, reason))

    async def restored(self, reason: str) -> None:
        """Initialize the app, which knows nothing of this session any more, then let calls through.

        An app that refuses, as one that has just been started may do, is asked again with growing delays, until the
        connection is lost once more.
        """
        before, losses = self._handshake.capabilities, self._losses
        for attempt in count(1):
            try:
                await self._handshake.initialize(self._timeout)
                break
            except ABPError as error:
                logger.warning("reconnected, but the app refused to begin again: %s", error.message)
            await asyncio.sleep(backoff_delay(attempt))
            if self._losses != losses:
                return  # the next restoration begins anew
        await self._resubscribe()
        self.ready.set()
        self._emit(ConnectionChanged(True, reason))
        await self._emit_difference(before)

    async def capabilities_changed(self, change: object) -> None:
        """Update the capabilities after the app said that they changed. What comes while a list is read waits for the
        next one: a flood of changes is a few lists, in order."""
        if change or not self._changes:  # an empty change only asks for a new list, and one does for many
            self._changes.append(change)
        if self._refreshing:
            return
        self._refreshing = True
        try:
            while self._changes:
                changes, before = tuple(self._changes), self._handshake.capabilities
                self._changes.clear()
                await self._handshake.apply_changes(changes)
                await self._emit_difference(before)
        finally:
            self._refreshing = False

    async def _emit_difference(self, before: Capabilities) -> None:
        now = self._handshake.capabilities
        change = await asyncio.to_thread(now.diff, before) if len(now) > MANY else now.diff(before)
        if change.added or change.removed or change.changed:
            self._emit(change)
