"""Set-up of OpenTelemetry, if the application has set it up. Without it, OpenTelemetry is not imported."""

from __future__ import annotations

import sys


def use_global_providers() -> None:
    """Send spans and measurements to the global providers of OpenTelemetry, once the application has set them.

    Until then each call does nothing, so it may be called any number of times."""
    if "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules:
        from ._otel import use_global_providers as use

        use()
