"""Traces and metrics. Without OpenTelemetry and without a server of metrics, every function here does nothing."""

from .calls import is_observing, observed_call, traced
from .metrics import (
    ARTIFACT_BYTES,
    BROWSER_RESTARTS,
    BROWSERS,
    CALL_DURATION,
    MCP_OPERATION_DURATION,
    METRICS,
    OPEN_BROWSERS,
    OTHER,
    Metric,
    Sink,
    record,
)
from .setup import use_global_providers
from .spans import (
    Attributes,
    Tracing,
    annotate,
    continue_trace,
    error_type,
    fail,
    is_tracing,
    propagation_headers,
    span,
)

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
