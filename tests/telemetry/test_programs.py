"""Telemetry of programs: nothing without OpenTelemetry, the command's variables, the web server, ``--metrics``."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import aiohttp
import pytest
from opentelemetry import metrics, trace

from tests.support.apps import answering
from tests.support.command_line import PATIENCE, CommandLine
from tests.support.eventually import eventually
from tests.support.spans import Collector
from tests.support.web_client import running
from tests.surfaces.cli.conftest import abp as abp, workbench as workbench
from transports import UsageError, connect
from transports.artifacts import open_store
from transports.memory import MemoryTransport
from transports.surfaces.cli import _running as telemetry
from transports.surfaces.cli._running import configure_telemetry
from transports.surfaces.shared._metrics import serve_metrics
from webapp_fixture import Fixture

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WITHOUT = """
import asyncio, json, sys
from transports import MemoryTransport, connect
from transports._internal.telemetry import is_tracing
async def make(params, call): return {"a": 1}
async def main():
    async with connect("memory:", transport=MemoryTransport({"make": make}), store="memory:") as app:
        await app.call("make")
def loaded():
    return sorted(name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client")))
asyncio.run(main())
before = loaded()
import opentelemetry.trace, opentelemetry.metrics  # as the MCP SDK does
asyncio.run(main())
print(json.dumps([before, is_tracing(), [name for name in loaded() if name.startswith("opentelemetry.sdk")]]))
"""


SHOUT = {"text.shout": answering({"text": "A"})}


@pytest.mark.slow
def test_call_does_not_import_opentelemetry() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], False, []]


def test_telemetry_setup_reports_missing_or_wrong_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        monkeypatch.setenv(name, "")
    configure_telemetry()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "pigeon")
    with pytest.raises(UsageError, match="pigeon"):
        configure_telemetry()
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._configuration", None)
    assert not caplog.records
    configure_telemetry()
    assert "abp-transports[otel]" in caplog.text
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    caplog.clear()
    configure_telemetry()
    assert not caplog.records


def test_command_does_not_wait_for_unreachable_collector(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone, began = threading.Event(), threading.Barrier(3)

    class Provider:
        def shutdown(self) -> None:
            began.wait(PATIENCE)
            gone.wait()

    monkeypatch.setattr(telemetry, "_configured", True)
    monkeypatch.setattr(telemetry, "_FINISH_TIMEOUT", 0.01)
    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    monkeypatch.setattr(metrics, "get_meter_provider", Provider)
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "level", logging.NOTSET)
    telemetry.flush_telemetry()
    assert [record.getMessage() for record in caplog.records] == [
        "not all traces and metrics reached their collector; -v says why"
    ]
    began.wait(PATIENCE)  # both were told, and neither has ended
    gone.set()


async def test_web_server_call_continues_trace_of_its_client(tmp_path: Path, collector: Collector) -> None:
    async with open_store(tmp_path) as store, running(store, SHOUT) as web:
        session = (await web.post("/apps", {"url": "ws://app.test/"})).json["session"]
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        asked = {"capability": "text.shout"}
        call = (await web.ask("POST", f"/apps/{session}/calls", json=asked, headers=headers)).json["id"]
        await eventually(lambda: web.served.activity.calls[call].duration_ms is not None)
        await web.get("/calls")
        text = (await web.get("/metrics")).body.decode()
    mine = {span.name: span for span in collector.ended if f"{span.context.trace_id:032x}" == TRACE}
    assert set(mine) == {
        "POST /apps/{session}/calls",
        "execute_tool text.shout",
        "abp.request",
        "abp.verify",
        "abp.commit",
    }
    server = mine["POST /apps/{session}/calls"]
    assert server.parent is not None and f"{server.parent.span_id:016x}" == PARENT
    assert dict(server.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/apps/{session}/calls",
        "http.response.status_code": 202,
        "url.scheme": "http",
    }
    assert not [span for span in collector.ended if span.name.startswith("GET")]
    labels = '{abp_capability="text.shout",abp_transport="memory",error_type=""}'
    assert f"abp_call_duration_seconds_count{labels} 1.0" in text


async def test_metrics_server_rejects_foreign_hosts_and_origins() -> None:
    async with serve_metrics("127.0.0.1", 0, "--metrics") as url, aiohttp.ClientSession() as http:
        async with connect("memory:", transport=MemoryTransport(SHOUT), store="memory:") as app:
            await app.call("text.shout")
        refused: list[dict[str, str]] = [{"Host": "evil.test"}, {"Host": "["}, {"Origin": "http://127.0.0.1"}]
        for headers in refused:
            async with http.get(url, headers=headers) as answer:
                assert answer.status == 403, headers
        async with http.get(url) as answer:
            assert answer.status == 200 and 'abp_capability="text.shout"' in await answer.text()
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(UsageError) as taken:
            async with serve_metrics("127.0.0.1", port, "--metrics"):
                pass
        assert taken.value.code == "ADDRESS_UNAVAILABLE"


def test_batch_serves_metrics_at_given_address(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(json.dumps({"capability": "data.csv", "params": {"rows": [{"n": 1}]}, "target": workbench.ws_url}))
    ran = abp("batch", "run", jobs, "--out", tmp_path / "run", "--metrics", "127.0.0.1:0")
    assert ran.status == 0 and "Prometheus metrics: http://127.0.0.1:" in ran.err, ran
    refused = abp("batch", "worker", tmp_path / "run", "--metrics", "0.0.0.0:9000")
    assert refused.status == 2 and "--metrics 0.0.0.0:9000" in refused.err
