"""Spans of OpenTelemetry in this process, without a global provider: a process can have one only once."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from transports._internal import telemetry as our_metrics, telemetry as spans
from transports._internal.telemetry import _otel as otel

#: The name of a span, and those in it, by their starts.
Tree: TypeAlias = "tuple[str, list[Tree]]"


class Collector:
    """What the application has set up: a provider of each kind, which keeps what it gets."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._spans.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.ended if span.name == name]
        return found

    def attributes(self, name: str) -> dict[str, Any]:
        return dict(self.named(name).attributes or {})

    def trees(self) -> list[Tree]:
        """All spans, each below its parent; one whose parent is elsewhere stands at the top."""
        known = {span.context.span_id for span in self.ended}

        def below(parent: int | None) -> list[Tree]:
            mine = [
                span
                for span in self.ended
                if (span.parent.span_id if span.parent and span.parent.span_id in known else None) == parent
            ]
            return [
                (span.name, below(span.context.span_id)) for span in sorted(mine, key=lambda span: span.start_time or 0)
            ]

        return below(None)

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data: Any = self._reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything(self) -> str:
        """All that left this process, as text, to look for a secret in it."""
        return "\n".join(span.to_json() for span in self.ended) + str(self._reader.get_metrics_data())


@contextmanager
def collecting() -> Iterator[Collector]:
    """Let the package find providers of OpenTelemetry, until the end of the block."""
    collector = Collector()
    factory = logging.getLogRecordFactory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: collector.tracers)
        patch.setattr(metrics, "get_meter_provider", lambda: collector.meters)
        patch.setattr(otel, "_used", set())
        patch.setattr(spans, "_tracing", None)
        patch.setattr(our_metrics, "_sinks", ())
        patch.setattr(our_metrics, "_seen", defaultdict(set))
        try:
            yield collector
        finally:
            logging.setLogRecordFactory(factory)
            collector.tracers.shutdown()
            collector.meters.shutdown()
