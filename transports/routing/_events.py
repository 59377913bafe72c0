"""Events of the routing, and what a transformer is given beside the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..artifacts import ArtifactStore, Scope


@dataclass(frozen=True, slots=True)
class ObservationClamped:
    """What an agent reads of an answer was cut to its limit (docs/requirements.md R2-4.4).

    ``call`` is the id of the call, ``""`` outside a session. ``original_bytes`` is what the agent would have read
    without the limit, ``clamped_bytes`` what it reads, both in UTF-8.
    """

    call: str
    capability: str
    original_bytes: int
    clamped_bytes: int


@dataclass(frozen=True, slots=True)
class CustomEvent:
    """An event of a transformer: its ``name`` and ``data``, any JSON value."""

    call: str
    capability: str
    name: str
    data: object = None


RoutingEvent: TypeAlias = ObservationClamped | CustomEvent
#: A plain function that gets the events of the routing. It must not block.
OnRoutingEvent: TypeAlias = Callable[[RoutingEvent], object]


@dataclass(frozen=True, slots=True)
class TransformContext:
    """The third argument of a transformer: the call that it works for, and the store to keep content in.

    ``call`` is the id of the call, ``""`` outside a session. References that ``store`` returns may stand anywhere in
    the transformer's answer: they become artifacts of the result.
    """

    capability: str
    call: str
    store: ArtifactStore
    _on_event: OnRoutingEvent | None = field(default=None, repr=False)

    @property
    def scope(self) -> Scope:
        """Whose artifacts the store keeps: the tenant, user, session and trace of this call, as far as they are set."""
        return self.store.scope

    def emit(self, name: str, data: object = None) -> None:
        """Send a :class:`CustomEvent` to the listeners of the session, or to the router's ``on_event``."""
        if self._on_event is not None:
            self._on_event(CustomEvent(self.call, self.capability, name, data))
