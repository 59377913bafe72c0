"""Results of a session: what an app answers, or a page tool makes, routed into the session's store."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..artifacts import ArtifactStore, Scope
from ..artifacts.ref import MAX_SCOPE_CHARS
from ..artifacts.wrapped_transport import TakesStore
from ..base import Transport
from ..protocol.messages import Message
from ..routing import ABP, Fetcher, OnDownload, OnRoutingEvent, Result, Router, RoutingConfig, RoutingPolicy
from .settings import Settings

if TYPE_CHECKING:
    from ..protocol.declarations import Capability

__all__ = ["Results"]

#: Files that a warning names.
_MAX_NAMED = 5
_OVER = "the answer is over the limits of the retention"


class Results:
    """Makes the results of one session. ``app_id`` returns the app's name in the ``source`` of what is stored."""

    def __init__(
        self,
        transport: Transport,
        store: ArtifactStore,
        settings: Settings,
        routing: RoutingPolicy | RoutingConfig | None,
        app_id: Callable[[], str],
    ) -> None:
        self._transport = transport
        #: The store that results go to.
        self.store = store
        self._settings = settings
        self._app_id = app_id
        #: Gets the events of the routing, in any thread.
        self.on_event: OnRoutingEvent = lambda _: None
        self._config = RoutingConfig() if routing is None else routing
        self._use_policy(self._config if isinstance(self._config, RoutingPolicy) else ABP)
        if isinstance(transport, TakesStore):
            transport.use_store(store)

    def policy_for(self, server: str) -> RoutingPolicy:
        """Return the policy, from now on the one for an app with this name if settings choose it."""
        if isinstance(self._config, RoutingConfig):
            self._use_policy(self._config.policy(server, presets=self._transport.features.presets))
        return self.policy

    def _use_policy(self, policy: RoutingPolicy) -> None:
        #: How answers are read.
        self.policy = policy
        self._fetcher = Fetcher(
            self._transport,
            timeout=self._settings.download_timeout / 1000,
            limit=self.store.max_bytes,
            allow_private=self._settings.allow_private_addresses,
            propagate=self._settings.trace_downloads,
        )
        self._router = self._new_router(self.store)

    def _new_router(self, store: ArtifactStore) -> Router:
        return Router(
            store,
            policy=self.policy,
            fetcher=self._fetcher,
            on_event=lambda event: self.on_event(event),
            durability=self._settings.durability,
        )

    def from_data(self, data: object, capability: str, started: float, call: str = "") -> Awaitable[Result]:
        """Store ``data`` as the result of ``capability``, begun at ``started`` (of :func:`time.perf_counter`)."""
        routing = self._router_of(call).route(
            data, capability=capability, source=self.source(call), transport=self._transport.name, started=started
        )
        return self._with_evictions_of(routing) if self.store.retention else routing

    def from_answer(
        self,
        reply: Message,
        data: object,
        capability: str,
        declared: Capability | None,
        *,
        call: str,
        warnings: Sequence[str],
        started: float,
        on_download: OnDownload,
    ) -> Awaitable[Result]:
        """Store an app's answer, with the files and side effects that the transport saw beside it. ``on_download`` is
        told how far each file behind a ``downloadUrl`` is.

        Raises :class:`~transports.errors.BinaryError` and what else the router raises; ``error.result`` has the rest.
        """
        routing = self._router_of(call).route(
            data,
            capability=capability,
            outputs=reply.outputs,
            effects=reply.effects,
            source=self.source(call),
            warnings=[*warnings, *reply.warnings],
            schema=declared.output_schema if declared else None,
            transport=self._transport.name,
            started=started,
            on_download=on_download,
            sender=reply.sender,
        )
        return self._with_evictions_of(routing) if self.store.retention else routing

    async def _with_evictions_of(self, routing: Awaitable[Result]) -> Result:
        result = await routing
        return await self.with_evictions(result) if len(result.artifacts) > 1 else result

    def _router_of(self, call: str) -> Router:
        """The router of one call. The limits of a trace concern what is in its scope: each call needs one of its own,
        unless the store's owner has chosen one."""
        if not self.store.retention or self.store.scope.trace:
            return self._router
        fits = 0 < len(call) <= MAX_SCOPE_CHARS and call.isprintable()
        view = self.store.scoped(Scope(trace=call if fits else uuid.uuid4().hex))
        return self._new_router(view)

    async def with_evictions(self, result: Result) -> Result:
        """Return the result with a warning for files that had to make room for later ones: of the same result, or what
        was stored beside it."""
        gone = [field for field, ref in result.artifacts.items() if not await self.store.exists(ref.id)]
        if not gone:
            return result
        named = ", ".join(field or "the answer" for field in gone[:_MAX_NAMED])
        more = f" and {len(gone) - _MAX_NAMED} more" if len(gone) > _MAX_NAMED else ""
        earlier = [warning for warning in result.warnings if not warning.startswith(_OVER)]
        return replace(result, warnings=(*earlier, f"{_OVER}; removed again: {named}{more}"))

    def source(self, call: str) -> dict[str, object]:
        """Return where a file of a call comes from: the ``source`` of its artifact."""
        return {"app": self._app_id(), "call": call} if call else {"app": self._app_id()}
