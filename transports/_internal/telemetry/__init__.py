"""Traces and metrics. Without OpenTelemetry and without a metrics server, every function here does nothing.

* :mod:`._instruments` — spans, the list of metrics, their measurement; no dependencies.
* :mod:`._otel` — OpenTelemetry, loaded by :func:`use_global_providers` if the application has; :mod:`._prometheus` —
  Prometheus.
"""

from __future__ import annotations

import sys


def use_global_providers() -> None:
    """Send spans and measurements to the global providers of OpenTelemetry, once the application has set them.

    Until then each call does nothing, so it may be called any number of times."""
    if "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules:
        from ._otel import use_global_providers as use  # late: an optional extra

        use()
