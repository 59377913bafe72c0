"""Events of the routing, and the context of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..artifacts import ArtifactStore, Scope


@dataclass(frozen=True, slots=True)
class ObservationClamped:
    """Cut of an agent's view of an answer to its limit (docs/requirements.md R2-4.4).

    ``call`` is the id of the call, ``""`` outside a session. ``original_bytes`` is the size of the whole view,
    ``clamped_bytes`` that of the cut one, both in UTF-8.
    """

    call: str
    capability: str
    original_bytes: int
    clamped_bytes: int


@dataclass(frozen=True, slots=True)
class CustomEvent:
    """Event of a transformer: its ``name`` and ``data``, any JSON value."""

    call: str
    capability: str
    name: str
    data: object = None


RoutingEvent: TypeAlias = ObservationClamped | CustomEvent
#: A plain function that receives the events of the routing. It must not block.
OnRoutingEvent: TypeAlias = Callable[[RoutingEvent], object]


@dataclass(frozen=True, slots=True)
class TransformContext:
    """Third argument of a transformer: its call, and the store to keep content in.

    ``call`` is the id of the call, ``""`` outside a session. References that ``store`` returns may stand anywhere in
    the transformer's answer: they become artifacts of the result. ``artifacts`` is the same store under the name that
    tools of hosts know (docs/requirements.md R2-3.6).
    """

    capability: str
    call: str
    store: ArtifactStore
    _on_event: OnRoutingEvent | None = field(default=None, repr=False)

    @property
    def artifacts(self) -> ArtifactStore:
        """The store of the call, as :attr:`store`."""
        return self.store

    @property
    def scope(self) -> Scope:
        """Scope of the store: the tenant, user, session and trace of this call, as far as they are set."""
        return self.store.scope

    def emit(self, name: str, data: object = None) -> None:
        """Send a :class:`CustomEvent` to the listeners of the session, or to the router's ``on_event``."""
        if self._on_event is not None:
            self._on_event(CustomEvent(self.call, self.capability, name, data))
