"""The numbers of ``GET /metrics``, in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from ...protocol.initialize import package_version
from ...telemetry.prometheus import CONTENT_TYPE, Exposition

__all__ = ["CONTENT_TYPE", "Metrics"]


class Metrics(Exposition):
    """Counters and gauges of one web server, beside those of every process.

    The values of a label must be few and may not come from a client, since each makes a time series.
    """

    def __init__(self) -> None:
        super().__init__(package_version())
        registry = self.registry
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
