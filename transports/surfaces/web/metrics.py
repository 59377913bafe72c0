"""The numbers of ``GET /metrics``, in the text format of Prometheus."""

from __future__ import annotations

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counters and gauges of one server, in a registry of its own: several servers of a process do not add up.

    The values of a label must be few and may not come from a client, since each makes a time series.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "abp_requests", "Requests, by method, route and status.", ("method", "route", "status"), registry=registry
        )
        self.content_bytes = Counter("abp_content_bytes", "Bytes of artifacts that were sent.", registry=registry)
        self.content_broken_off = Counter(
            "abp_content_broken_off", "Artifacts whose sending broke off, by reason.", ("reason",), registry=registry
        )
        self.uploads = Counter("abp_uploads", "Files that were uploaded.", registry=registry)
        self.listeners_dropped = Counter(
            "abp_listeners_dropped", "Clients of /events that were dropped: they did not read.", registry=registry
        )
        self.listeners = Gauge("abp_listeners", "Clients of /events now.", registry=registry)
        self.apps = Gauge("abp_apps", "Apps that are connected now.", registry=registry)
        self.calls = Gauge("abp_calls", "Calls that are remembered, by status.", ("status",), registry=registry)
        memory = Gauge("abp_memory_bytes", "Resident memory of the process.", registry=registry)
        memory.set_function(lambda: psutil.Process().memory_info().rss)

    def render(self) -> bytes:
        """Return all values; the media type is :data:`CONTENT_TYPE`."""
        return generate_latest(self._registry)
