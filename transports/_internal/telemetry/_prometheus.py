"""Metrics in the text format of Prometheus."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from . import METRICS, Metric, recording

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Exposition:
    """The metrics in the format of Prometheus. Each exposition has a registry of its own, so that two servers in one
    process do not share series. Process metrics (``process_resident_memory_bytes``, …) exist on Linux only."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._series: dict[str, Counter | Histogram] = {}
        for metric in METRICS:
            name, text = metric.prometheus_name, metric.description
            match metric.kind:
                case "histogram":
                    self._series[metric.name] = Histogram(
                        name, text, metric.prometheus_labels, buckets=metric.buckets, registry=registry
                    )
                case "counter":
                    self._series[metric.name] = Counter(name, text, metric.prometheus_labels, registry=registry)
                case "gauge":
                    Gauge(name, text, registry=registry).set_function(metric.value)

        build = Gauge("abp_build_info", "The versions that run, as labels.", ("version", "python"), registry=registry)
        build.labels(version, platform.python_version()).set(1)
        ProcessCollector(registry=registry)

    @contextmanager
    def recording(self) -> Iterator[Self]:
        with recording(self.record):
            yield self

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        series = self._series[metric.name]
        if metric.labels:
            series = series.labels(*(labels.get(name, "") for name in metric.labels))
        if isinstance(series, Histogram):
            series.observe(value)
        else:
            series.inc(value)

    def render(self) -> bytes:
        return generate_latest(self.registry)
