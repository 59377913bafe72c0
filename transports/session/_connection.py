"""Handshake and connection of a session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from .. import protocol
from .._internal.masking import placeholder_paths
from .._internal.tasks import backoff_delay, cancel_and_wait, in_thread_if
from .._internal.telemetry import traced
from ..base import Transport
from ..errors import ABPError, Disconnected, ProtocolError, TransportError, UsageError, format_seconds
from ..protocol._capabilities import MANY, Capabilities, deprecation_warnings, is_long
from ..protocol._find_content import Found
from ..protocol.messages import Message, initialize_params
from ..protocol.schema import check_params, unnamed_params
from ._events import ConnectionChanged

if TYPE_CHECKING:
    from ..protocol._capabilities import Discovery
    from ..protocol._declarations import AppInfo, Capability
    from ._events import Event

logger = logging.getLogger("transports")


class Handshake:
    """Handshake with an app, and the app's description of itself. ``generate`` adds capabilities that this side
    answers; ``list_timeout`` in seconds is for ``listCapabilities``."""

    info: AppInfo
    session_id: str
    features: Mapping[str, bool]

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
        """Send ``initialize``, for at most ``timeout`` seconds, and read the list of capabilities."""
        params = initialize_params(capabilities=self._requested)
        greeting = self._transport.request(Message("initialize", params), timeout=timeout)
        reply = await traced(greeting, "abp.initialize", {"abp.transport": self._transport.name}, "client")

        payload = reply.payload
        if isinstance(payload, dict) and payload.get("success") is False:
            protocol.parse(protocol.Answer, payload, "the app's answer to initialize").raise_for_error("initialize")
        if isinstance(payload, dict) and isinstance(payload.get("data"), dict) and "sessionId" not in payload:
            # Some apps wrap the payload like the answer to a call.
            payload = payload["data"]
        initialized = protocol.parse(protocol.Initialized, payload, "the app's answer to initialize")

        self.info = initialized.app
        self.session_id = initialized.session_id
        self.features = {name: value for name, value in initialized.features.items() if isinstance(value, bool)}

        listed: object = None
        if self._transport.features.listing:
            listed = await self._list_capabilities()

        def read_capabilities() -> Capabilities:
            declared = Capabilities().merge(initialized.capabilities).merge(listed)
            return self._generate(declared.with_manifest(self._in_manifest))

        is_large = is_long(initialized.capabilities) or is_long(listed)
        self.capabilities = await in_thread_if(is_large, read_capabilities)

    async def apply_manifest(self, discovery: asyncio.Future[Discovery]) -> None:
        """Fill in from the manifest what the app did not say at run time (docs/protocol.md 7.5)."""
        await asyncio.wait((discovery,), timeout=1.0)
        if not discovery.done():
            # A slow web server must not hold up a session that is connected already.
            await cancel_and_wait((discovery,))
            return

        result = discovery.result()
        if result.manifest is None:
            if not self._transport.features.undeclared:
                reason = result.reason.message if result.reason else ""
                # Not logged: many apps have no manifest.
                self.warnings = (f"connected without a manifest: {reason}",)
            return

        self._in_manifest = result.manifest.capabilities
        # What the app said at run time has precedence over its manifest.
        app_in_manifest = result.manifest.app.model_dump(exclude_defaults=True)
        self.info = self.info.model_copy(update=app_in_manifest | self.info.model_dump(exclude_defaults=True))

        from ._manifest import missing_capabilities  # late: most apps have no manifest

        self.warnings = (*result.warnings, *missing_capabilities(self._in_manifest, self.capabilities))
        self.capabilities = self.capabilities.with_manifest(self._in_manifest)
        for warning in self.warnings:
            logger.warning("%s", warning)

    async def apply_changes(self, changes: Iterable[object]) -> None:
        """Apply changes ``{added, removed, changed}``, of which any may be missing. If the transport can list
        capabilities, the new list has precedence."""
        listed: object = None
        if self._transport.features.listing:
            with contextlib.suppress(TransportError):
                listed = await self._list_capabilities()
        previous = self.capabilities

        def read_capabilities() -> Capabilities:
            capabilities = previous
            for change in changes:
                capabilities = capabilities.apply_change(change)
            current = Capabilities().merge(listed)
            if current:
                capabilities = capabilities.merge(listed).only(current)
            return self._generate(capabilities.with_manifest(self._in_manifest))

        is_large = len(previous) > MANY or is_long(listed)
        self.capabilities = await in_thread_if(is_large, read_capabilities)

    def check_params(self, capability: Capability, params: object, content: Sequence[Found]) -> list[str]:
        """Check parameters against the schema of their capability, and return warnings: those about the capability once
        in a session, those about parameters that the schema does not name each time.

        Files and buffers in ``content`` fit any schema, as do names of secrets."""
        if not (capability.input_schema or capability.deprecated or capability.experimental):
            return []

        places = [item.path for item in content]
        try:
            warnings = check_params(capability.name, capability.input_schema, params, places)
        except UsageError:
            secrets = list(placeholder_paths(params))
            if not secrets:
                raise
            # This side has only the name of a secret; the app checks its value.
            warnings = check_params(capability.name, capability.input_schema, params, places + secrets)

        new_warnings = [text for text in (*deprecation_warnings(capability), *warnings) if text not in self._warned]
        self._warned.update(new_warnings)
        hints = [f"{capability.name}: {hint}" for hint in unnamed_params(capability.input_schema, params)]
        return new_warnings + hints

    async def _list_capabilities(self) -> object:
        """Return the payload of ``listCapabilities``, or ``None`` if the app lacks the method, which is optional."""
        try:
            reply = await self._transport.request(Message("capabilities/list"), timeout=self._list_timeout)
        except ProtocolError as error:
            logger.warning("the app could not list its capabilities: %s", error.message)
            return None
        return reply.payload


class Connection:
    """State of the connection. ``ready`` is set while the transport is connected and the app initialized; calls wait
    for it. ``timeout`` in seconds is for a new handshake, after which ``resubscribe`` renews subscriptions."""

    def __init__(
        self,
        handshake: Handshake,
        *,
        timeout: float,
        resubscribe: Callable[[], Awaitable[None]],
        emit: Callable[[Event], None],
    ) -> None:
        self.ready = asyncio.Event()
        #: Reason of the last loss of the connection.
        self.reason = ""
        #: Why the last attempt to restore it failed; empty if none has.
        self.obstacle = ""
        self._losses = 0
        # Changes that arrive while a list is read. Dropping the oldest loses nothing: the next list contains them.
        self._changes: deque[object] = deque(maxlen=1000)
        self._refreshing = False
        self._refreshed = asyncio.Event()
        self._handshake = handshake
        self._timeout = timeout
        self._resubscribe = resubscribe
        self._emit = emit

    async def wait_until_ready(self, seconds_left: float, timeout: float) -> None:
        """Wait until the connection is ready, for the rest of the ``timeout`` of a call. Raises ``Disconnected``."""
        try:
            async with asyncio.timeout(seconds_left):
                await self.ready.wait()
        except TimeoutError:
            lost = self.reason.partition("; ")[0] or "the connection was lost"  # without its advice
            message = f"{lost}, and the app was not back within {format_seconds(timeout)}"
            if self.obstacle not in ("", self.reason):
                message += f": {self.obstacle}"
            raise Disconnected(message, sent=False) from None

    def on_lost(self, reason: str) -> None:
        """Hold calls back until the connection is restored."""
        self.reason = reason
        self.obstacle = ""
        self._losses += 1
        self.ready.clear()
        self._emit(ConnectionChanged(False, reason))

    async def on_restored(self, reason: str) -> None:
        """Repeat the handshake, since the app has lost the session, then let calls through. An app that refuses,
        perhaps because it has just started, is retried with back-off until the connection is lost again."""
        previous = self._handshake.capabilities
        losses = self._losses
        for attempt in count(1):
            try:
                await self._handshake.initialize(self._timeout)
                break
            except ABPError as error:
                self.obstacle = error.message
                logger.warning("reconnected, but the app refused to begin again: %s", error.message)
            except Exception:
                # Calls wait until a handshake succeeds, so it is tried again after any error.
                logger.exception("reconnected, but the handshake with the app failed")
            await asyncio.sleep(backoff_delay(attempt))
            if self._losses != losses:
                # Lost again: the next restoration starts from the beginning.
                return

        try:
            await self._resubscribe()
        except Exception:
            # Calls must go on, even without the subscriptions.
            logger.exception("reconnected, but the subscriptions could not be renewed")

        self.ready.set()
        self._emit(ConnectionChanged(True, reason))
        await self._emit_difference(previous)

    async def on_capabilities_changed(self, change: object) -> None:
        """Apply a change of the capabilities. Changes that arrive while a list is read are applied together with the
        next list, so that a flood of changes costs only a few lists."""
        # An empty change only asks for a new list, which any waiting change does, too.
        if change or not self._changes:
            self._changes.append(change)
        if self._refreshing:
            return

        self._refreshing = True
        self._refreshed.clear()
        try:
            while self._changes:
                changes = tuple(self._changes)
                previous = self._handshake.capabilities
                self._changes.clear()
                await self._handshake.apply_changes(changes)
                await self._emit_difference(previous)
        finally:
            self._refreshing = False
            self._refreshed.set()

    async def relist_capabilities(self) -> None:
        """Read the list of capabilities again and wait for it, for five seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await self.on_capabilities_changed({})
                await self._refreshed.wait()

    async def _emit_difference(self, previous: Capabilities) -> None:
        current = self._handshake.capabilities
        change = await in_thread_if(len(current) > MANY, current.diff, previous)
        if change.added or change.removed or change.changed:
            self._emit(change)
