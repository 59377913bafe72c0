"""Traces of calls: the tree of their spans, what stands in it and what never does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry import trace

from tests.support.apps import AtAddress, answering
from tests.support.spans import Collector, Tree
from transports import CapabilityError, MemoryTransport, connect
from transports._internal.masking import KNOWN_SECRETS
from transports.memory import Call
from transports.surfaces.cli._running import _PlainFormatter

SECRET = "canary-4711"
SIZE = 300_000


class Server:
    """Files of an app's own origin, and the headers that they were asked with."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers: list[dict[str, str]] = []


@pytest.fixture
async def origin() -> AsyncIterator[Server]:
    async def file(request: web.Request) -> web.Response:
        server.headers.append({name.lower(): value for name, value in request.headers.items()})
        if request.path == "/moved":
            raise web.HTTPFound(elsewhere.make_url(f"/f?token={SECRET}"))
        return web.Response(body=bytes(SIZE)) if "f" in request.path else web.Response(status=404)

    app, other = web.Application(), web.Application()
    app.router.add_get("/{name}", file)
    other.router.add_get("/{name}", file)
    async with TestServer(app) as served, TestServer(other) as elsewhere:
        server = Server(str(served.make_url("/")))
        yield server


def app_at(server: Server, path: str) -> MemoryTransport:
    answer = {"document": {"downloadUrl": f"/{path}?token={SECRET}", "mimeType": "application/pdf", "size": SIZE}}

    async def refuse(params: object, call: Call) -> object:
        raise CapabilityError(f"no {SECRET}", code="PRINTER_EMPTY" if params else f"{SECRET} is no code")

    return AtAddress(server.url, {"make": answering(answer), "refuse": refuse})


async def test_a_call_is_one_trace_from_the_request_to_the_commit(
    origin: Server, collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trace.get_tracer_provider().get_tracer("agent").start_as_current_span("agent"):
        async with connect("memory:", transport=app_at(origin, "f"), store=tmp_path) as app:
            result = await app.call("make", {"password": SECRET, "title": "t"}, call_id="c-1")
            for params in ({"code": 1}, {}):
                with pytest.raises(CapabilityError):
                    await app.call("refuse", params)
            with pytest.raises(CapabilityError):
                await app.call(f"unknown {SECRET}")
            with caplog.at_level("INFO"), trace.get_tracer("agent").start_as_current_span("logs"):
                logging.getLogger("transports.routing.http").info("in the trace")
                logging.getLogger("another").info("not ours")
        logging.getLogger("transports.routing.http").info("in the agent's span")
    assert result.artifact().size_bytes == SIZE
    ((name, children),) = collector.trees()
    assert name == "agent"
    stored: list[Tree] = [("abp.request", []), ("abp.transfer", [("GET", [])]), ("abp.verify", []), ("abp.commit", [])]
    refused: list[Tree] = [("abp.request", [])]
    assert children == [
        ("abp.open", []),
        ("abp.initialize", []),
        ("execute_tool make", stored),
        ("execute_tool refuse", refused),
        ("execute_tool refuse", refused),
        ("execute_tool _OTHER", refused),
        ("logs", []),
    ]
    assert collector.attributes("execute_tool make") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "make",
        "gen_ai.tool.call.id": "c-1",
        "abp.capability": "make",
        "abp.transport": "memory",
    }
    assert collector.attributes("abp.commit") == {"abp.artifact.size": SIZE}
    get = collector.attributes("GET")
    assert (get["http.request.method"], get["http.response.status_code"]) == ("GET", 200)
    assert [one.attributes["error.type"] for one in collector.ended if one.name == "execute_tool refuse"] == [  # type: ignore[index]
        "PRINTER_EMPTY",
        "_OTHER",
    ]
    assert not [one for one in collector.ended if one.events or one.status.description]
    assert SECRET not in collector.everything()
    ours, other = [record for record in caplog.records if record.getMessage() in ("in the trace", "not ours")]
    assert (ours.otelTraceID, ours.otelSpanID) == (  # type: ignore[attr-defined]
        trace.format_trace_id(collector.named("logs").context.trace_id),
        trace.format_span_id(collector.named("logs").context.span_id),
    )
    assert not hasattr(other, "otelTraceID")
    line = _PlainFormatter("abp: %(message)s").format(ours)
    assert line == f"abp: in the trace [trace_id={ours.otelTraceID} span_id={ours.otelSpanID}]"  # type: ignore[attr-defined]
    assert _PlainFormatter("abp: %(message)s").format(other) == "abp: not ours"
    assert "traceparent" not in origin.headers[0]


@pytest.mark.parametrize("path", ["f", "moved"])
async def test_same_origin_downloads_carry_trace_when_enabled(
    path: str, origin: Server, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABP_TRACE_DOWNLOADS", "1")
    monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")
    async with connect("memory:", transport=app_at(origin, path), store=tmp_path) as app:
        await app.call("make")
    first = next(one for one in collector.ended if one.name == "GET").context
    asked, *redirected = [headers.get("traceparent", "") for headers in origin.headers]
    assert asked.startswith(f"00-{first.trace_id:032x}-{first.span_id:016x}-")
    assert redirected == ([""] if path == "moved" else [])  # another port is another origin


async def test_traces_include_params_only_on_request_and_redacted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {
        "title": "t",
        "password": SECRET,
        "url": f"https://u:{SECRET}@host/",
        "file": b"content" * 100,
        "small": b"content",
    }
    for asked in ("", "1"):
        monkeypatch.setenv("ABP_TRACE_PARAMS", asked)
        async with connect("memory:", transport=MemoryTransport({"make": answering(1)}), store="none:") as app:
            await app.call("make", params)
    without, with_params = [dict(one.attributes or {}) for one in collector.ended if one.name == "execute_tool make"]
    assert "gen_ai.tool.call.arguments" not in without
    text = str(with_params["gen_ai.tool.call.arguments"])
    assert '"title":"t"' in text.replace(" ", "") and "<redacted>" in text and "Y29udGVudA" not in text
    assert SECRET not in collector.everything()


async def test_named_secret_appears_in_trace_by_name(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refuse(params: Mapping[str, object], _: Call) -> object:
        heard.append(params["key"])
        raise CapabilityError(f"no {params['key']}", code="NOT_ALLOWED")

    heard: list[object] = []
    monkeypatch.setenv("CANARY", SECRET)
    monkeypatch.setenv("ABP_TRACE_PARAMS", "1")
    config = tmp_path / "team.toml"
    config.write_text('[secrets.KEY]\nenv = "CANARY"\norigins = ["http://app.test"]\n')
    try:
        app = AtAddress("http://app.test/", {"refuse": refuse})
        async with connect("memory:", transport=app, config=config, store="none:") as session:
            with pytest.raises(CapabilityError):
                await session.call("refuse", {"key": "${SECRET:KEY}", "title": "t"})
    finally:
        KNOWN_SECRETS.forget()
    assert heard == [SECRET]
    assert "${SECRET:KEY}" in str(collector.attributes("execute_tool refuse")["gen_ai.tool.call.arguments"])
    assert SECRET not in collector.everything()
