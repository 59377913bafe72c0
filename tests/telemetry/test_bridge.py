"""The MCP bridge in a trace: the client's own span above, the session's below, and the numbers of its requests."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import httpx2 as httpx
from mcp.shared import _otel
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, RequestParamsMeta
from opentelemetry.trace import INVALID_SPAN, StatusCode

from tests.support.mcp_clients import ERAS, URL
from tests.support.mcp_http import ANN, client_of, served
from tests.support.slow import slow_but
from tests.support.spans import Collector, Tree
from transports import connect

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "canary-4711"


def meta(traceparent: str) -> RequestParamsMeta:
    return cast(RequestParamsMeta, {"traceparent": traceparent})


def spans_of_trace(collector: Collector) -> dict[str, dict[str, Any]]:
    return {
        span.name: dict(span.attributes or {}) for span in collector.ended if f"{span.context.trace_id:032x}" == TRACE
    }


@pytest.mark.load
@pytest.mark.parametrize("era", slow_but(ERAS, ERAS[1]))
async def test_a_tool_call_is_one_trace_from_the_client_to_the_store(
    era: str, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = collector.tracers.get_tracer("mcp")
    monkeypatch.setattr(_otel, "_tracer", tracer)

    async def refused_by_the_app(*_: object) -> None:
        raise MCPError(INVALID_PARAMS, f"no {SECRET}")

    monkeypatch.setattr("transports.surfaces.mcp._bridge.read_app_resource", refused_by_the_app)
    async with served(tmp_path) as url, client_of(url, ANN, era) as agent:
        with tracer.start_as_current_span("agent"):
            await agent.call_tool("abp_connect", {"url": URL})
            await agent.call_tool("abp_text_shout", {"text": SECRET})
            failed = await agent.call_tool("abp_print_page", {})
            with pytest.raises(MCPError):
                await agent.call_tool("abp_none", {})
            with pytest.raises(MCPError, match=SECRET):
                await agent.read_resource("app:///list")
        async with httpx.AsyncClient() as http:
            address = url.replace("/mcp", "/metrics")
            allowed = {"Authorization": f"Bearer {ANN}"}
            answers = [
                await http.get(address, headers=headers)
                for headers in (allowed, {}, allowed | {"Host": "evil.test"}, allowed | {"Origin": "http://evil.test"})
            ]
    assert failed.is_error
    (tree,) = [one for one in collector.trees() if one[0] == "agent"]
    calls = [one for one in tree[1] if "tools/call" in one[0]]
    stored: list[Tree] = [("abp.request", []), ("abp.verify", []), ("abp.commit", [])]
    work: dict[str, list[Tree]] = {
        "abp_connect": [("abp.open", []), ("abp.initialize", [])],
        "abp_text_shout": [("execute_tool text.shout", stored)],
        "abp_print_page": [("execute_tool print.page", [("abp.request", [])])],
        "abp_none": [],
    }
    assert calls == [(f"MCP send tools/call {tool}", [(f"tools/call {tool}", inner)]) for tool, inner in work.items()]
    asked = collector.attributes("tools/call abp_text_shout")
    assert asked | {"gen_ai.tool.name": "abp_text_shout", "network.transport": "tcp"} == asked
    assert ("mcp.session.id" in asked) == (era == "legacy")
    assert collector.attributes("tools/call abp_print_page")["error.type"] == "tool_error"
    refused = collector.named("resources/read")
    assert refused.status.status_code is StatusCode.ERROR and refused.attributes is not None
    assert refused.attributes["error.type"] == "-32602" and not refused.status.description
    assert SECRET not in "".join(
        span.to_json()
        for span in collector.ended
        if not span.name.startswith("MCP send")  # the client's own
    )

    assert [answer.status_code for answer in answers] == [200, 401, 421, 403]
    shown = answers[0].text
    for name, error in (("abp_text_shout", ""), ("abp_print_page", "tool_error"), ("_OTHER", "-32602")):
        labels = f'error_type="{error}",gen_ai_tool_name="{name}",mcp_method_name="tools/call",network_transport="tcp"'
        assert f"mcp_server_operation_duration_seconds_count{{{labels}}} 1.0" in shown
    assert "abp_call_duration_seconds_count" in shown and "abp_build_info{" in shown and "abp_none" not in shown
    assert collector.points("mcp.server.operation.duration")


@pytest.mark.load
@pytest.mark.parametrize("era", slow_but(ERAS, ERAS[1]))
async def test_client_without_spans_continues_trace_by_meta_or_header(
    era: str, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = collector.tracers.get_tracer("mcp")
    monkeypatch.setattr(
        "mcp.shared.jsonrpc_dispatcher.otel_span", lambda *_, **__: contextlib.nullcontext(INVALID_SPAN)
    )
    monkeypatch.setattr("mcp.shared.jsonrpc_dispatcher.inject_trace_context", lambda _: None)
    monkeypatch.setattr(_otel, "_tracer", tracer)
    async with served(tmp_path) as url:
        async with client_of(url, ANN, era) as agent:
            await agent.call_tool("abp_connect", {"url": URL})
            await agent.call_tool("abp_text_shout", {"text": "a"}, meta=meta(TRACEPARENT))
            assert "execute_tool text.shout" in spans_of_trace(collector)
            await agent.call_tool("abp_text_shout", {"text": "a"}, meta=meta("00-nonsense"))
        async with client_of(url, ANN, era, {"traceparent": TRACEPARENT}) as agent:
            await agent.call_tool("abp_file_digest", {})
    assert "execute_tool file.digest" in spans_of_trace(collector)
    (server,) = [span for span in collector.ended if span.name == "tools/call abp_file_digest"]
    assert server.parent is not None and f"{server.parent.span_id:016x}" == PARENT


@pytest.mark.load
async def test_bridge_calls_join_trace_of_calling_session(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_otel, "_tracer", collector.tracers.get_tracer("mcp"))
    async with served(tmp_path) as url:
        headers = {"Authorization": f"Bearer {ANN}"}
        async with connect(f"mcp+{url}", headers=headers, store="none:") as server:
            await server.call("abp_connect", {"url": URL})
            await server.call("abp_call", {"capability": "text.shout", "params": {"text": "a"}})
    (tree,) = [one for one in collector.trees() if one[0] == "execute_tool abp_call"]
    names = []
    while tree[1]:
        tree = tree[1][0]
        names.append(tree[0])
    assert names == [
        "abp.request",
        "MCP send tools/call abp_call",
        "tools/call abp_call",
        "execute_tool text.shout",
        "abp.request",
    ]
