"""What an app says of itself: when it is greeted, in its manifest, and when it changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from ..base import Transport
from ..errors import ProtocolError, TransportError
from ..http import Discovery, missing_capabilities
from ..protocol.capabilities import Capabilities
from ..protocol.declarations import AppInfo, Capability, parse
from ..protocol.initialize import initialize_params
from ..protocol.messages import Message
from ..protocol.payloads import Answer, Initialized
from ..tasks import cancel_and_wait

__all__ = ["Introduction"]

logger = logging.getLogger("transports")

#: Seconds that a manifest may take longer than connecting.
_LOOK = 1.0


class Introduction:
    """``info``, ``session_id`` and ``capabilities`` are what the app said last, ``warnings`` what was odd about its
    manifest. ``generated`` adds capabilities that are answered on this side; ``patience`` in seconds is for a list."""

    info: AppInfo
    session_id: str

    def __init__(
        self,
        transport: Transport,
        requested: Sequence[str],
        generated: Callable[[Capabilities], Capabilities],
        *,
        patience: float,
    ) -> None:
        self._transport = transport
        self._requested = tuple(requested)
        self._generated = generated
        self._patience = patience
        self._declared: Sequence[Capability] = ()
        self.capabilities = Capabilities()
        self.warnings: tuple[str, ...] = ()

    async def greet(self, timeout: float) -> None:
        """``initialize``, for at most ``timeout`` seconds. Raises what the transport and the app's refusal do."""
        params = initialize_params(capabilities=self._requested)
        reply = await self._transport.request(Message("initialize", params), timeout=timeout)
        payload = reply.payload
        if isinstance(payload, dict) and payload.get("success") is False:
            parse(Answer, payload, "the app's answer to initialize").raise_for_error("initialize")
        if isinstance(payload, dict) and isinstance(payload.get("data"), dict) and "sessionId" not in payload:
            payload = payload["data"]  # some apps wrap it like a call's answer
        initialized = parse(Initialized, payload, "the app's answer to initialize")
        self.info = initialized.app
        self.session_id = initialized.session_id
        listed = await self._list() if self._transport.features.listing else None
        told = Capabilities().merge(initialized.capabilities).merge(listed)
        self.capabilities = self._generated(told.with_manifest(self._declared))

    async def inform(self, looking: asyncio.Future[Discovery]) -> None:
        """The manifest informs (PROTOCOL "Discovery"): it fills in what the app did not say at run time."""
        await asyncio.wait((looking,), timeout=_LOOK)
        if not looking.done():  # must not hold up who has connected already
            await cancel_and_wait((looking,))
            return
        found = looking.result()
        if found.manifest is None:  # many apps have none: worth a note, not a line on everybody's terminal
            self.warnings = (f"connected without a manifest: {found.reason.message if found.reason else ''}",)
            return
        self._declared = found.manifest.capabilities
        self.warnings = (*found.warnings, *missing_capabilities(self._declared, self.capabilities))
        self.capabilities = self.capabilities.with_manifest(self._declared)
        for note in self.warnings:
            logger.warning("%s", note)

    async def change(self, said: object) -> None:
        """The app says that its capabilities changed: ``{added, removed, changed}``, or less."""
        after = self.capabilities.apply_change(said)
        if self._transport.features.listing:
            with contextlib.suppress(TransportError):
                listed = await self._list()
                if now := Capabilities().merge(listed):
                    after = after.merge(listed).only(now)
        self.capabilities = self._generated(after.with_manifest(self._declared))

    async def _list(self) -> object:
        """What ``listCapabilities`` says; an app without it, or whose list is wrapped or empty, is not refused."""
        try:
            reply = await self._transport.request(Message("capabilities/list"), timeout=self._patience)
        except ProtocolError as error:
            logger.warning("the app could not list its capabilities: %s", error.message)
            return None
        return reply.payload
