"""Measurements, as a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from transports._internal.telemetry import Metric, recording


class Measured:
    """What was measured: the metric's name, the value, the labels."""

    def __init__(self) -> None:
        self.all: list[tuple[str, float, dict[str, str]]] = []

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.all.append((metric.name, value, dict(labels)))

    def labels(self, name: str) -> list[dict[str, str]]:
        return [labels for measured, _, labels in self.all if measured == name]


@contextmanager
def measuring() -> Iterator[Measured]:
    measured = Measured()
    with recording(measured.record):
        yield measured
