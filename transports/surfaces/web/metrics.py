"""A handful of counters in Prometheus' text format. A library for it would bring a registry of its own, global to the
process; here each server has its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HELP = {
    "abp_requests_total": "Requests, by method, route and status.",
    "abp_content_bytes_total": "Bytes of artifacts that were sent.",
    "abp_content_broken_off_total": "Artifacts whose sending broke off, by reason.",
    "abp_uploads_total": "Files that were uploaded.",
    "abp_listeners_dropped_total": "Listeners to events that were dropped because they did not read.",
    "abp_listeners": "Listeners to events now.",
    "abp_apps": "Apps that are connected now.",
    "abp_calls": "Calls that are remembered, by status.",
    "abp_memory_bytes": "Resident memory of the process.",
}


class Metrics:
    """Counters that grow, and gauges that are asked when somebody looks."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
        self._gauges: list[tuple[str, Callable[[], dict[tuple[tuple[str, str], ...], float]]]] = []

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """``labels`` must be few and not up to whoever sends requests."""
        self._counts[name, tuple(sorted(labels.items()))] += amount

    def gauge(self, name: str, read: Callable[[], dict[tuple[tuple[str, str], ...], float]]) -> None:
        """``read`` gives a value for each combination of labels."""
        self._gauges.append((name, read))

    def text(self) -> str:
        """All of them."""
        values: dict[str, list[tuple[tuple[tuple[str, str], ...], float]]] = {}
        for (name, labels), value in sorted(self._counts.items()):
            values.setdefault(name, []).append((labels, value))
        for name, read in self._gauges:
            values[name] = sorted(read().items())
        lines: list[str] = []
        for name, samples in values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]
            for labels, value in samples:
                told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                lines.append(f"{name}{{{told}}} {value!r}" if told else f"{name} {value!r}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
