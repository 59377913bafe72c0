"""Traces and metrics. Without OpenTelemetry and without a metrics server, every function here does nothing.

* :mod:`.instruments` — spans, the list of metrics, their measurement; no dependencies.
* :mod:`.otel` — OpenTelemetry; :mod:`.setup` loads it if the application has; :mod:`.prometheus` — Prometheus.
"""

from .instruments import (
    ARTIFACT_BYTES,
    BROWSER_RESTARTS,
    BROWSERS,
    CALL_DURATION,
    MCP_OPERATION_DURATION,
    METRICS,
    OPEN_BROWSERS,
    OTHER,
    Attributes,
    Metric,
    Sink,
    Tracing,
    annotate,
    continue_trace,
    error_type,
    fail,
    is_observing,
    is_tracing,
    observed_call,
    propagation_headers,
    record,
    span,
    traced,
)
from .setup import use_global_providers

__all__ = [
    "ARTIFACT_BYTES",
    "BROWSERS",
    "BROWSER_RESTARTS",
    "CALL_DURATION",
    "MCP_OPERATION_DURATION",
    "METRICS",
    "OPEN_BROWSERS",
    "OTHER",
    "Attributes",
    "Metric",
    "Sink",
    "Tracing",
    "annotate",
    "continue_trace",
    "error_type",
    "fail",
    "is_observing",
    "is_tracing",
    "observed_call",
    "propagation_headers",
    "record",
    "span",
    "traced",
    "use_global_providers",
]
