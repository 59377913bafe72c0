"""Results of a session: answers routed into the artifact store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._internal.tasks import in_thread
from ..artifacts._base import ArtifactStore
from ..artifacts._ref import MAX_SCOPE_CHARS, Scope
from ..base import Transport
from ..protocol._plain_text import first_names
from ..protocol.messages import Message
from ..routing._layers import Fetcher, OnDownload
from ..routing._policy import ABP, OnRoutingEvent, RoutingConfig, RoutingPolicy
from ..routing._result import Result
from ..routing._router import Router
from ._call import Call
from ._settings import Settings


class Results:
    """Results of one session: answers routed into ``store``. ``app_id`` returns the app's name for their ``source``."""

    def __init__(
        self,
        transport: Transport,
        store: ArtifactStore,
        settings: Settings,
        routing: RoutingPolicy | RoutingConfig | None,
        app_id: Callable[[], str],
    ) -> None:
        self._transport = transport
        self.store = store
        self._settings = settings
        self._app_id = app_id
        #: Callback for the events of the routing; it is called in any thread.
        self.on_event: OnRoutingEvent = lambda _: None
        self._config = RoutingConfig() if routing is None else routing
        # A policy from settings depends on the app's name, which the handshake brings: see policy_for().
        self._use_policy(self._config if isinstance(self._config, RoutingPolicy) else ABP)
        transport.use_store(store)

    def policy_for(self, server: str) -> RoutingPolicy:
        """Return the routing policy for the app called ``server``, and use it from now on. Only a policy that depends
        on settings differs between apps."""
        if isinstance(self._config, RoutingConfig):
            self._use_policy(self._config.policy(server, presets=self._transport.features.presets))
        return self.policy

    def _use_policy(self, policy: RoutingPolicy) -> None:
        self.policy = policy
        self._fetcher = Fetcher(
            self._transport,
            timeout=self._settings.download_timeout / 1000,
            limit=self.store.max_bytes,
            allow_private=self._settings.allow_private_addresses,
            propagate=self._settings.trace_downloads,
            accept_compression=self._settings.accept_compression,
        )
        self._router = self._new_router(self.store)

    def _new_router(self, store: ArtifactStore) -> Router:
        policy = self.policy
        if not policy.inline_data:
            # The session needs the data of its results; apply_inline_policy() leaves them out at the end.
            policy = replace(policy, inline_data=True)
        return Router(
            store,
            policy=policy,
            fetcher=self._fetcher,
            # A lambda, because the session sets the attribute after __init__.
            on_event=lambda event: self.on_event(event),
            durability=self._settings.durability,
        )

    async def apply_inline_policy(self, result: Result) -> Result:
        """Leave the data of a result in its files only, if the policy has no ``inline_data``. This is the last step:
        what the session itself does with a result, such as reading links, needs the data."""
        if self.policy.inline_data:
            return result
        return await in_thread(result.by_reference)

    async def from_data(self, data: object, call: Call, **options: Any) -> Result:
        """Store ``data`` as the result of a call. ``options`` are further arguments of :meth:`.Router.route`."""
        result = await self._router_of(call).route(
            data,
            capability=call.capability,
            source=self.source(call.id),
            transport=self._transport.name,
            started=call.started,
            **options,
        )
        # A file can only have been evicted by a later file of the same result.
        if not self.store.retention or len(result.artifacts) <= 1:
            return result
        return await self.with_evictions(result)

    async def from_answer(self, reply: Message, data: object, call: Call, on_download: OnDownload) -> Result:
        """Store an answer, and the files that the transport captured beside it. The error of a file that cannot be used
        has the stored parts in its ``result``."""
        return await self.from_data(
            data,
            call,
            outputs=reply.outputs,
            effects=reply.effects,
            warnings=[*call.warnings, *reply.warnings],
            schema=None if reply.is_checked else call.output_schema,
            on_download=on_download,
            sender=reply.sender,
        )

    def _router_of(self, call: Call) -> Router:
        """Return the router for a call. With a retention, each call stores to a trace of its own, since limits of a
        trace apply per scope; a trace that the store's owner chose is kept."""
        if not self.store.retention or self.store.scope.trace:
            return self._router

        trace = call.id
        is_valid_trace = 0 < len(trace) <= MAX_SCOPE_CHARS and trace.isprintable()
        if not is_valid_trace:
            trace = uuid.uuid4().hex
        return self._new_router(self.store.scoped(Scope(trace=trace)))

    async def with_evictions(self, result: Result) -> Result:
        """Return the result with a warning that names its files that the retention has already evicted."""
        evicted_fields = [field for field, ref in result.artifacts.items() if not await self.store.exists(ref.id)]
        if not evicted_fields:
            return result

        names = first_names([field or "the answer" for field in evicted_fields], max_names=5)
        reason = "the answer is over the limits of the retention"
        # An earlier check of the same result may have left such a warning: this one replaces it.
        others = [warning for warning in result.warnings if not warning.startswith(reason)]
        return replace(result, warnings=(*others, f"{reason}; removed again: {names}"))

    def source(self, call: str) -> dict[str, object]:
        return {"app": self._app_id(), "call": call}
