"""OpenTelemetry for the command line, by the standard ``OTEL_*`` variables."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

from ...errors import UsageError
from ...telemetry import is_tracing, use_global_providers

__all__ = ["configure", "finish"]

logger = logging.getLogger("transports")

_configured = False

#: One of these says where to, and so turns it on; the SDK reads these and the others itself.
_DESTINATIONS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_LOGS_EXPORTER",
    "OTEL_CONFIG_FILE",
)
#: Seconds at the end for what is not sent yet: a collector that is gone would hold a command for half a minute.
_FINISH_TIMEOUT = 3.0
_DEFAULTS = {
    "OTEL_SERVICE_NAME": "abp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
}


def configure() -> None:
    """Set up OpenTelemetry if a variable names a destination, by the SDK's own auto-configuration.

    Where the program was started by ``opentelemetry-instrument``, everything is set up already. Without the extra
    ``otel`` a warning says what is missing. Raises :class:`~transports.errors.UsageError` for variables that make no
    sense.
    """
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not any(os.environ.get(name) for name in _DESTINATIONS):
        return
    use_global_providers()
    if is_tracing():
        return
    try:
        from opentelemetry.sdk._configuration import _OTelSDKConfigurator
    except ImportError:
        logger.warning("OTEL_… asks for traces, and OpenTelemetry is missing: pip install 'abp-transports[otel]'")
        return

    for name, value in _DEFAULTS.items():
        if not os.environ.get(name):
            os.environ[name] = value
    global _configured
    try:
        configurator: Any = type("Configurator", (_OTelSDKConfigurator,), {})  # it is to be subclassed
        configurator().configure()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"OTEL_… variables: {error}; correct them, or unset them") from error
    _configured = True


def finish() -> None:
    """Send what is left, three seconds at most, if :func:`configure` has set anything up."""
    if not _configured:
        return
    if not logger.isEnabledFor(logging.INFO):
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it has a line for each attempt
    from opentelemetry import metrics, trace

    providers: list[Any] = [trace.get_tracer_provider(), metrics.get_meter_provider()]
    threads = [threading.Thread(target=provider.shutdown, daemon=True) for provider in providers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _FINISH_TIMEOUT
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    if any(thread.is_alive() for thread in threads):
        logger.warning("not all traces and metrics reached their collector; -v says why")
