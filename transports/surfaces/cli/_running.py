"""Run of a command: its event loop, which a signal ends, notes on unknown variables, logs, and OpenTelemetry."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from ..._internal.telemetry import is_tracing, use_global_providers
from ...errors import UsageError
from ...protocol._plain_text import plain_line, plain_text
from ...session._settings import Settings, settings_variables, unknown_variables, unread_variable_message
from . import on_signal
from ._output import log_level, print_note

P = ParamSpec("P")
T = TypeVar("T")


def asynchronous(command: Callable[P, Coroutine[object, object, T]]) -> Callable[P, T]:
    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_async(partial(command, *args, **kwargs))

    return run


def run_async(work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run a command: call ``work``, and run the coroutine that it returns in an event loop. The call itself is outside
    of the loop, where a signal ends it at once; waiting for stdin belongs there."""
    level = log_level(Settings.load().log_level)
    for name, meant in unknown_variables(settings_variables).items():
        # The bridge and the web server check their own variables.
        if not name.upper().startswith(("ABP_MCP_", "ABP_SERVE_")):
            print_note(unread_variable_message(name, meant))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PlainFormatter("abp: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    configure_telemetry()
    # asyncio logs long warnings about pending tasks when a driver is killed.
    if level != "DEBUG":
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    try:
        return asyncio.run(_until_stopped(work()))
    finally:
        flush_telemetry()


async def _until_stopped(work: Coroutine[object, object, T]) -> T:
    """Await ``work``, which a signal cancels. Raises :class:`~.Stopped` if it did not succeed after a signal."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    with on_signal(lambda: loop.call_soon_threadsafe(task.cancel)) as signalled:
        await asyncio.wait((task,))
        stop = signalled()

    # Work may still have succeeded after the signal; then its result counts.
    failed = task.cancelled() or task.exception() is not None
    if stop is not None and failed:
        raise stop
    return task.result()


class _PlainFormatter(logging.Formatter):
    """Formatter of log messages: one line each, with a traceback below."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        message = super().formatMessage(record)
        # Inside of a span, OpenTelemetry sets these ids.
        trace_id = getattr(record, "otelTraceID", "0")
        if trace_id != "0":
            message += f" [trace_id={trace_id} span_id={record.otelSpanID}]"  # type: ignore[attr-defined]
        return plain_line(message)

    def format(self, record: logging.LogRecord) -> str:
        return plain_text(super().format(record))


_kit_logger = logging.getLogger("transports")

_configured = False

#: Variables that name a destination and so turn telemetry on; the SDK reads these and all others itself.
_DESTINATIONS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
    "OTEL_LOGS_EXPORTER",
    "OTEL_CONFIG_FILE",
)
#: Seconds to send the remaining spans and metrics: with an unreachable collector a command would hang for half a
#: minute.
_FINISH_TIMEOUT = 3.0
_DEFAULTS = {
    "OTEL_SERVICE_NAME": "abp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
}


def configure_telemetry() -> None:
    """Set up OpenTelemetry if its variables ask for it, unless ``opentelemetry-instrument`` has done it."""
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not any(os.environ.get(name) for name in _DESTINATIONS):
        return
    use_global_providers()
    if is_tracing():
        return
    try:
        from opentelemetry.sdk._configuration import _OTelSDKConfigurator
    except ImportError:
        _kit_logger.warning("OTEL_… asks for traces, and OpenTelemetry is missing: pip install 'abp-transports[otel]'")
        return

    for name, value in _DEFAULTS.items():
        if not os.environ.get(name):
            os.environ[name] = value
    global _configured
    try:
        configurator: Any = type("Configurator", (_OTelSDKConfigurator,), {})  # the SDK expects a subclass
        configurator().configure()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"OTEL_… variables: {error}; correct them, or unset them") from error
    _configured = True


def flush_telemetry() -> None:
    """Send the remaining spans and metrics, within three seconds."""
    if not _configured:
        return
    # OpenTelemetry logs every failed attempt.
    if not _kit_logger.isEnabledFor(logging.INFO):
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    from opentelemetry import metrics, trace

    providers: list[Any] = [trace.get_tracer_provider(), metrics.get_meter_provider()]
    threads = [threading.Thread(target=provider.shutdown, daemon=True) for provider in providers]
    for thread in threads:
        thread.start()

    deadline = time.monotonic() + _FINISH_TIMEOUT
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    if any(thread.is_alive() for thread in threads):
        _kit_logger.warning("not all traces and metrics reached their collector; -v says why")
