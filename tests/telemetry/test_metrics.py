"""Metrics: the same values for OpenTelemetry and for Prometheus, and labels that nobody else can fill."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.apps import answering
from tests.support.spans import Collector
from transports import CapabilityError, MemoryTransport, connect
from transports.telemetry import BROWSER_RESTARTS, METRICS, OPEN_BROWSERS, record
from transports.telemetry.prometheus import Exposition


class Browser:
    """Something that is open."""


def shown(exposition: Exposition) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples by name and labels."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(exposition.render().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


async def test_each_metric_has_the_same_values_in_both_worlds(collector: Collector) -> None:
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


def test_a_label_has_two_hundred_values_at_most(collector: Collector) -> None:
    with Exposition("1").recording() as exposition:
        for number in range(300):
            record(BROWSER_RESTARTS, 1, {"reason": f"made up {number}"})
    values = shown(exposition)["abp_browser_restarts_total"]
    assert len(values) == 201 and values[(("reason", "_OTHER"),)] == 100


def test_names_for_prometheus_follow_from_those_of_opentelemetry() -> None:
    assert {metric.prometheus_name for metric in METRICS} == {
        "abp_call_duration_seconds",
        "abp_artifact_bytes",
        "abp_browsers",
        "abp_browser_restarts_total",
        "mcp_server_operation_duration_seconds",
    }
