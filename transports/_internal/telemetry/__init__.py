"""Spans and metrics of the package, sent to a tracer and to sinks if there are any.

It loads neither OpenTelemetry nor Prometheus: :mod:`._otel` and :mod:`._prometheus` are loaded on demand.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar
from weakref import WeakSet

from ...errors import ABPError

if TYPE_CHECKING:
    from ._otel import OtelTracing

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
Kind: TypeAlias = Literal["internal", "server", "client"]

_OFF = nullcontext()
#: Label for values that are not known, as in OpenTelemetry's conventions.
OTHER = "_OTHER"
#: Histogram buckets in seconds, by the conventions for MCP (mcp.server.operation.duration).
_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_BYTES = tuple(float(1 << power) for power in range(10, 31, 2))
_SUFFIXES = {"s": "_seconds", "By": "_bytes"}
OPEN_BROWSERS: WeakSet[object] = WeakSet()
_T = TypeVar("_T")


_tracing: OtelTracing | None = None


def trace_with(tracing: OtelTracing) -> None:
    global _tracing
    _tracing = tracing


def is_tracing() -> bool:
    return _tracing is not None


def span(name: str, attributes: Attributes, kind: Kind = "internal") -> AbstractContextManager[object]:
    """Return a context manager that records a span of the block. If an error leaves the block, only its
    :func:`error_type` is recorded, since its message may quote an app."""
    return _OFF if _tracing is None else _tracing.span(name, kind, attributes)


def annotate(attributes: Attributes) -> None:
    if _tracing is not None:
        _tracing.annotate(attributes)


def mark_span_failed(error_type: str) -> None:
    if _tracing is not None:
        _tracing.mark_span_failed(error_type)


def continue_trace(carrier: Mapping[str, str]) -> AbstractContextManager[object]:
    """Return a context manager that continues the trace of a request with these headers in its block. Without a valid
    ``traceparent`` it does nothing."""
    return _OFF if _tracing is None else _tracing.continue_trace(carrier)


def propagation_headers() -> Mapping[str, str]:
    """Return headers of W3C Trace Context, without baggage."""
    return {} if _tracing is None else _tracing.headers()


def error_type(error: BaseException) -> str:
    """Return the label of an error in spans and metrics: its code, or the name of its class."""
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED"
    # Some exceptions carry an ABPError, such as RetryRequest.
    error = getattr(error, "error", error)
    if isinstance(error, ABPError):
        # Apps choose the codes of their errors, and other text must not become a metric's label.
        return error.code if re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", error.code) else OTHER
    return type(error).__qualname__


@dataclass(frozen=True)
class Metric:
    """A metric of the kit. ``name``, ``unit`` (UCUM) and ``labels`` are those of OpenTelemetry. ``value`` returns the
    current value of a gauge; values of other metrics come from :func:`record`."""

    name: str
    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    value: Callable[[], float] = float

    @property
    def prometheus_name(self) -> str:
        """Name in Prometheus, by the rules of OpenTelemetry: ``_`` for dots, then the unit, and ``_total`` for a
        counter."""
        name = self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "")
        if self.kind == "counter":
            name += "_total"
        return name

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        return tuple(label.replace(".", "_") for label in self.labels)


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


#: Receiver of a measurement with the known labels of its metric.
Sink: TypeAlias = "Callable[[Metric, float, Mapping[str, str]], None]"
_sinks: tuple[Sink, ...] = ()
_seen: defaultdict[tuple[str, str], set[str]] = defaultdict(set)


def add_sink(sink: Sink) -> None:
    global _sinks
    _sinks = (*_sinks, sink)


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Send measurements to ``sink`` while the block runs."""
    global _sinks
    add_sink(sink)
    try:
        yield
    finally:
        _sinks = tuple(other for other in _sinks if other is not sink)


def record(metric: Metric, value: float, labels: Mapping[str, str] | None = None) -> None:
    """Send a measurement to all sinks. After 200 different values of a label, other values become ``_OTHER``."""
    if _sinks:
        bounded = {name: _bounded_label(metric, name, text) for name, text in (labels or {}).items()}
        for sink in _sinks:
            sink(metric, value, bounded)


def _bounded_label(metric: Metric, label: str, text: str) -> str:
    """Return the value of a label, or ``_OTHER`` if the label has too many values already. Apps choose the names of
    their capabilities and the codes of their errors, and must not create any number of series."""
    max_values = 200
    seen = _seen[metric.name, label]
    if text not in seen:
        if len(seen) >= max_values:
            return OTHER
        seen.add(text)
    return text


def observing_call(
    call: str, capability: str, transport: str, capabilities: Container[str]
) -> AbstractContextManager[object]:
    """Return a context manager that records a call as a span and as a measurement. The span follows OpenTelemetry's
    conventions for the execution of a tool. A capability that is not among ``capabilities`` may be any text of a
    caller, so its name is not recorded."""
    if _tracing is None and not _sinks:
        return _OFF
    is_known = capability in capabilities or capability in ("render_to_pdf", "screenshot")
    return _observing_call(call, capability if is_known else OTHER, transport)


@contextmanager
def _observing_call(call: str, capability: str, transport: str) -> Iterator[None]:
    labels = {"abp.capability": capability, "abp.transport": transport}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": capability, "gen_ai.tool.call.id": call}
    started = time.perf_counter()
    try:
        with span(f"execute_tool {capability}", {**tool, **labels}):
            yield
    except BaseException as error:
        labels["error.type"] = error_type(error)
        raise
    finally:
        record(CALL_DURATION, time.perf_counter() - started, labels)


def traced(work: Awaitable[_T], name: str, attributes: Attributes, kind: Kind = "internal") -> Awaitable[_T]:
    """Return ``work`` with a span around it, if there is a tracer."""
    return work if _tracing is None else _await_in_span(work, name, attributes, kind)


async def _await_in_span(work: Awaitable[_T], name: str, attributes: Attributes, kind: Kind) -> _T:
    with span(name, attributes, kind):
        return await work


def use_global_providers() -> None:
    """Use OpenTelemetry's global providers, once the application has set them. Until then this does nothing, so it may
    be called any number of times."""
    api = sys.modules.get("opentelemetry.trace")
    # The MCP SDK always loads the API of traces, which then has a placeholder.
    has_tracers = api is not None and not type(api.get_tracer_provider()).__module__.startswith("opentelemetry.trace")
    if has_tracers or "opentelemetry.metrics" in sys.modules or os.environ.get("OTEL_PYTHON_METER_PROVIDER"):
        from ._otel import use_global_providers as use  # late: an optional extra

        use()
