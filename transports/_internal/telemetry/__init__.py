"""Traces and metrics. Without OpenTelemetry and without a metrics server, every function here does nothing.

* :mod:`._instruments` — spans, the list of metrics, their measurement; no dependencies.
* :mod:`._otel` — OpenTelemetry, loaded by :func:`use_global_providers` if the application has; :mod:`._prometheus` —
  Prometheus.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..lazy import lazy_names
from ._instruments import (
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

if TYPE_CHECKING:
    from ._prometheus import CONTENT_TYPE as CONTENT_TYPE, Exposition as Exposition
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_prometheus": (
                "CONTENT_TYPE",
                "Exposition",
            ),
        },
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


def use_global_providers() -> None:
    """Send spans and measurements to the global providers of OpenTelemetry, once the application has set them.

    Until then each call does nothing, so it may be called any number of times."""
    if "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules:
        from ._otel import use_global_providers as use  # late: an optional extra

        use()
