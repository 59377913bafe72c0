"""The metrics: one definition of each, for OpenTelemetry and for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol
from weakref import WeakSet

__all__ = [
    "ARTIFACT_BYTES",
    "BROWSERS",
    "BROWSER_RESTARTS",
    "CALL_DURATION",
    "MCP_OPERATION_DURATION",
    "METRICS",
    "OPEN_BROWSERS",
    "OTHER",
    "Metric",
    "Sink",
    "add_sink",
    "record",
    "recording",
]

#: Stands for a value that is not one of the known ones, as in OpenTelemetry's conventions.
OTHER = "_OTHER"
#: Different values of one label at most: apps choose the names of their capabilities and the codes of their errors.
_MAX_VALUES = 200
#: Seconds, of the conventions for MCP (mcp.server.operation.duration).
_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_BYTES = tuple(float(1 << power) for power in range(10, 31, 2))
_SUFFIXES = {"s": "_seconds", "By": "_bytes"}


@dataclass(frozen=True)
class Metric:
    """One metric. ``name``, ``unit`` (UCUM) and ``labels`` are those of OpenTelemetry. ``value`` returns what a gauge
    stands at; other metrics are told by :func:`record`."""

    name: str
    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    value: Callable[[], float] = float

    @property
    def prometheus_name(self) -> str:
        """The name for Prometheus, by OpenTelemetry's rules: ``_`` for dots, the unit, ``_total`` for a counter."""
        total = "_total" if self.kind == "counter" else ""
        return self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "") + total

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """The labels for Prometheus."""
        return tuple(label.replace(".", "_") for label in self.labels)


#: The browsers of this process that are open now.
OPEN_BROWSERS: WeakSet[object] = WeakSet()

CALL_DURATION = Metric(
    "abp.call.duration",
    "histogram",
    "s",
    "Calls of capabilities, from the request until everything is stored.",
    ("abp.capability", "abp.transport", "error.type"),
    _SECONDS,
)
ARTIFACT_BYTES = Metric("abp.artifact", "histogram", "By", "Artifacts that were stored, by size.", (), _BYTES)
BROWSERS = Metric("abp.browsers", "gauge", "{browser}", "Browsers that are open now.", value=lambda: len(OPEN_BROWSERS))
BROWSER_RESTARTS = Metric(
    "abp.browser.restarts", "counter", "{restart}", "Browsers that were started again or replaced.", ("reason",)
)
MCP_OPERATION_DURATION = Metric(
    "mcp.server.operation.duration",
    "histogram",
    "s",
    "Requests and notifications that the MCP bridge received, until it sent the result or acknowledged them.",
    ("mcp.method.name", "gen_ai.tool.name", "network.transport", "error.type"),
    _SECONDS,
)
METRICS = (CALL_DURATION, ARTIFACT_BYTES, BROWSERS, BROWSER_RESTARTS, MCP_OPERATION_DURATION)


class Sink(Protocol):
    """Where measurements go: instruments of OpenTelemetry, a registry of Prometheus."""

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Add a measurement. ``labels`` has those of the metric that are known."""


_sinks: tuple[Sink, ...] = ()
_seen: defaultdict[tuple[str, str], set[str]] = defaultdict(set)


def add_sink(sink: Sink) -> None:
    """Send measurements to ``sink``, too, from now on."""
    global _sinks
    _sinks = (*_sinks, sink)


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Send measurements to ``sink``, too, while the block lasts."""
    global _sinks
    add_sink(sink)
    try:
        yield
    finally:
        _sinks = tuple(one for one in _sinks if one is not sink)


def record(metric: Metric, value: float, labels: Mapping[str, str] | None = None) -> None:
    """Add a measurement to a histogram, or to a counter. Of values of a label beyond 200 each becomes ``_OTHER``."""
    if _sinks:
        known = {name: _bounded(metric, name, text) for name, text in (labels or {}).items()}
        for sink in _sinks:
            sink.record(metric, value, known)


def _bounded(metric: Metric, label: str, text: str) -> str:
    seen = _seen[metric.name, label]
    if text not in seen:
        if len(seen) >= _MAX_VALUES:
            return OTHER
        seen.add(text)
    return text
