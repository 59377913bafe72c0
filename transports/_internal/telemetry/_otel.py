"""Spans and metrics of OpenTelemetry.

Only :func:`transports._internal.telemetry.use_global_providers` imports this module."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import METRICS, Attributes, Kind, Metric, add_sink, error_type, trace_with

_NAME = "transports"
_KINDS: Mapping[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
}
#: W3C Trace Context alone: baggage of the application may hold data that an app must not see.
_PROPAGATOR = TraceContextTextMapPropagator()

#: Signals whose global provider is in use already.
_used: set[str] = set()


class OtelTracing:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def span(self, name: str, kind: Kind, attributes: Attributes) -> Iterator[None]:
        """Record a span of the block. Of an exception only the type is recorded, since its message may quote an app."""
        with self._tracer.start_as_current_span(
            name, kind=_KINDS[kind], attributes=attributes, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except BaseException as error:
                self.mark_span_failed(error_type(error))
                raise

    def annotate(self, attributes: Attributes) -> None:
        trace.get_current_span().set_attributes(dict(attributes))

    def mark_span_failed(self, error_type: str) -> None:
        current = trace.get_current_span()
        current.set_attribute("error.type", error_type)
        current.set_status(StatusCode.ERROR)

    def continue_trace(self, carrier: Mapping[str, str]) -> AbstractContextManager[object]:
        extracted = _PROPAGATOR.extract(dict(carrier), context.get_current())
        remote = trace.get_current_span(extracted).get_span_context()
        if not remote.is_valid or not remote.is_remote:
            return nullcontext()
        return _attached_context(extracted)

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier


@contextmanager
def _attached_context(extracted: context.Context) -> Iterator[None]:
    token = context.attach(extracted)
    try:
        yield
    finally:
        context.detach(token)


class OtelMetrics:
    def __init__(self, meter: Meter) -> None:
        self._instruments: dict[str, Counter | Histogram] = {}
        for metric in METRICS:
            match metric.kind:
                case "histogram":
                    self._instruments[metric.name] = meter.create_histogram(
                        metric.name,
                        metric.unit,
                        metric.description,
                        explicit_bucket_boundaries_advisory=list(metric.buckets),
                    )
                case "counter":
                    self._instruments[metric.name] = meter.create_counter(metric.name, metric.unit, metric.description)
                case "gauge":
                    callback = partial(_observe, metric)
                    meter.create_observable_up_down_counter(metric.name, [callback], metric.unit, metric.description)

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        instrument = self._instruments[metric.name]
        if isinstance(instrument, Histogram):
            instrument.record(value, labels)
        else:
            instrument.add(value, labels)


def _observe(metric: Metric, _: CallbackOptions) -> list[Observation]:
    return [Observation(metric.value())]


def use_global_providers() -> None:
    """Use the global providers that are set. The API's placeholders for unset ones are left alone: they do nothing."""
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if "traces" not in _used and not type(tracers).__module__.startswith("opentelemetry.trace"):
        _used.add("traces")
        trace_with(OtelTracing(tracers.get_tracer(_NAME)))
        _stamp_log_records()
    if "metrics" not in _used and not type(meters).__module__.startswith("opentelemetry.metrics"):
        _used.add("metrics")
        add_sink(OtelMetrics(meters.get_meter(_NAME)).record)


def _stamp_log_records() -> None:
    """Add the ids of the trace and the span to the package's log records. The names ``otelTraceID`` and ``otelSpanID``
    are those that OpenTelemetry's instrumentation of :mod:`logging` uses."""
    make = logging.getLogRecordFactory()

    def make_stamped(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        if record.name.partition(".")[0] == _NAME:
            # Formatters need both attributes, also outside of spans.
            record.otelTraceID = record.otelSpanID = "0"
            current = trace.get_current_span().get_span_context()
            if current.is_valid:
                record.otelTraceID = trace.format_trace_id(current.trace_id)
                record.otelSpanID = trace.format_span_id(current.span_id)
        return record

    logging.setLogRecordFactory(make_stamped)
