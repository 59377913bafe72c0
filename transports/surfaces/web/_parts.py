"""What the routes of one server share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...artifacts._base import ArtifactStore
from ...artifacts._signing import Signer
from ..shared._activity import Activity, StoreWatcher
from ..shared._apps import Apps
from ..shared._detached import DetachedCalls
from ._access import Limits, Options, Visitor
from ._responses import Metrics
from ._runs import ServedRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the handlers of a server share. ``apps`` are those that the server has connected, and ``named`` are names of
    apps that may be connected. ``activity`` may be shared with another surface, and has its apps, too."""

    store: ArtifactStore
    options: Options
    limits: Limits
    metrics: Metrics
    signer: Signer
    watcher: StoreWatcher
    activity: Activity
    apps: Apps
    calls: DetachedCalls
    runs: ServedRuns
    named: Collection[str]

    def store_of(self, visitor: Visitor) -> ArtifactStore:
        return self.store.scoped(visitor.scope)
