"""Results of a session: what an app answers, or a page tool makes, routed into the session's store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..artifacts import ArtifactStore
from ..base import Transport
from ..protocol.declarations import Capability
from ..protocol.messages import Message
from ..protocol.payloads import Answer
from ..routing import Fetcher, OnDownload, OnRoutingEvent, Result, Router, RoutingPolicy
from .settings import Settings

__all__ = ["Results"]


class Results:
    """Makes the results of one session. ``app_id`` returns the app's name in the ``source`` of what is stored."""

    def __init__(
        self,
        transport: Transport,
        store: ArtifactStore,
        settings: Settings,
        policy: RoutingPolicy,
        app_id: Callable[[], str],
    ) -> None:
        self._transport = transport
        self._store = store
        self._settings = settings
        self._app_id = app_id
        #: Gets the events of the routing, in any thread.
        self.on_event: OnRoutingEvent = lambda _: None
        self.use_policy(policy)

    def use_policy(self, policy: RoutingPolicy) -> None:
        """Route by ``policy`` from now on."""
        fetcher = Fetcher(
            self._transport,
            timeout=self._settings.download_timeout / 1000,
            limit=self._store.max_bytes,
            allow_private=self._settings.allow_private_addresses,
        )
        self._router = Router(self._store, policy=policy, fetcher=fetcher, on_event=lambda event: self.on_event(event))

    async def from_data(self, data: object, capability: str, started: float, call: str = "") -> Result:
        """Store ``data`` as the result of ``capability``, begun at ``started`` (of :func:`time.perf_counter`)."""
        return await self._router.route(
            data, capability=capability, source=self._source(call), transport=self._transport.name, started=started
        )

    async def from_answer(
        self,
        reply: Message,
        answer: Answer,
        capability: str,
        declared: Capability | None,
        *,
        call: str,
        warnings: Sequence[str],
        started: float,
        on_download: OnDownload,
    ) -> Result:
        """Store an app's answer, with the files and side effects that the transport saw beside it. ``on_download`` is
        told how far each file behind a ``downloadUrl`` is.

        Raises :class:`~transports.errors.BinaryError` and what else the router raises; ``error.result`` has the rest.
        """
        return await self._router.route(
            answer.data,
            capability=capability,
            outputs=reply.outputs,
            effects=reply.effects,
            source=self._source(call),
            warnings=[*warnings, *reply.warnings],
            schema=declared.output_schema if declared else None,
            transport=self._transport.name,
            started=started,
            on_download=on_download,
        )

    def _source(self, call: str) -> dict[str, object]:
        return {"app": self._app_id(), **({"call": call} if call else {})}
