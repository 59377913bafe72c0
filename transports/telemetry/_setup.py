"""Finds out whether the application has set up OpenTelemetry. Nothing is imported that is not there already."""

from __future__ import annotations

import sys


def use_global_providers() -> None:
    """Send spans and measurements to the global providers of OpenTelemetry from now on, if the application has set
    them. Until then this may be called any number of times."""
    if "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules:
        from ._otel import use_global_providers as use

        use()
