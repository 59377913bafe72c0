"""Metrics: the same values for OpenTelemetry and for Prometheus, and labels that nobody else can fill."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.apps import answering
from tests.support.spans import Collector
from transports import CapabilityError, MemoryTransport, connect
from transports._internal.telemetry import BROWSER_RESTARTS, METRICS, OPEN_BROWSERS, record
from transports._internal.telemetry._prometheus import Exposition

EXAMPLES = Path(__file__).parents[2] / "examples" / "observability"


class Browser:
    """Something that is open."""


def shown(exposition: Exposition) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples by name and labels."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(exposition.render().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


async def test_metrics_match_in_opentelemetry_and_prometheus(collector: Collector) -> None:
    browser, before = Browser(), len(OPEN_BROWSERS)
    OPEN_BROWSERS.add(browser)
    with Exposition("1.2.3").recording() as exposition:
        transport = MemoryTransport({"make": answering({"image": b"0" * 5000})})
        async with connect("memory:", transport=transport, store="memory:") as app:
            await app.call("make")
            with pytest.raises(CapabilityError):
                await app.call("unknown")
        record(BROWSER_RESTARTS, 1, {"reason": "age"})
        samples = shown(exposition)
    record(BROWSER_RESTARTS, 1, {"reason": "age"})  # it takes no measurements any more
    assert shown(exposition)["abp_browser_restarts_total"] == samples["abp_browser_restarts_total"]
    labels = (("abp_capability", "make"), ("abp_transport", "memory"), ("error_type", ""))
    refused = (("abp_capability", "_OTHER"), ("abp_transport", "memory"), ("error_type", "UNKNOWN_CAPABILITY"))
    assert samples["abp_call_duration_seconds_count"] == {labels: 1.0, refused: 1.0}
    assert samples["abp_artifact_bytes_sum"] == {(): 5000.0}
    assert samples["abp_browsers"] == {(): before + 1.0}
    assert samples["abp_browser_restarts_total"] == {(("reason", "age"),): 1.0}
    ((build, one),) = samples["abp_build_info"].items()
    assert dict(build)["version"] == "1.2.3" and one == 1
    assert samples["process_resident_memory_bytes"][()] > 1e6

    (point, other) = collector.points("abp.call.duration")
    assert dict(point.attributes) == {"abp.capability": "make", "abp.transport": "memory"} and point.count == 1
    assert other.attributes["error.type"] == "UNKNOWN_CAPABILITY"
    assert point.explicit_bounds == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
    assert collector.points("abp.artifact")[0].sum == 5000
    assert collector.points("abp.browsers")[0].value == before + 1
    assert collector.points("abp.browser.restarts")[0].value == 2


def test_metric_label_keeps_at_most_200_values(collector: Collector) -> None:
    with Exposition("1").recording() as exposition:
        for number in range(300):
            record(BROWSER_RESTARTS, 1, {"reason": f"made up {number}"})
    values = shown(exposition)["abp_browser_restarts_total"]
    assert len(values) == 201 and values[(("reason", "_OTHER"),)] == 100


def test_grafana_board_uses_existing_metrics_and_labels() -> None:
    board = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
    asked = [(panel["title"], one) for panel in board["panels"] for one in panel["targets"]]
    known = _series(Exposition("1"))
    used: set[str] = set()
    for title, target in asked:
        query, legend = target["expr"], target["legendFormat"]
        names = set(re.findall(r"\b(?:abp|mcp|process)_\w+", _without_labels(query)))
        assert names and names <= known.keys(), (title, names - known.keys())
        used |= names
        labels = {"instance", "job"}.union(*(known[name] for name in names))
        grouped = ",".join(re.findall(r"(?:by|on) \(([^)]*)\)", query))
        chosen = re.findall(r"(\w+)!?=", query)
        assert {*filter(None, re.split(r"[,\s]+", grouped)), *chosen} <= labels, title
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels, title
    own = {family for family in known if family.startswith(("abp_", "mcp_"))}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in used if not name.startswith("process_")} == {
        re.sub("_(bucket|sum|count)$", "", name) for name in own if not name.endswith("_created")
    }


def _without_labels(query: str) -> str:
    return re.sub(r"{[^}]*}|(?:by|on) \([^)]*\)", "", query)


def _series(exposition: Exposition) -> dict[str, set[str]]:
    """The names of all series, and their labels."""
    for metric in METRICS:
        if metric.kind != "gauge":
            exposition.record(metric, 1, dict.fromkeys(metric.labels, "x"))
    families = text_string_to_metric_families(exposition.render().decode())
    series: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        series.setdefault(sample.name, set()).update(sample.labels)
    return series
