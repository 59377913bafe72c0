"""Evidence as a person, a batch, an agent and a test ask for it."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.command_line import CommandLine
from tests.support.mcp_clients import Serve, called, era, serve
from tests.surfaces.cli.conftest import abp, workbench
from transports import Evidence, MemoryTransport, UsageError
from transports.session._evidence import evidence_for, with_default_evidence
from transports.session._secrets import Guard, Guarded, Secrets
from transports.surfaces.cli._options import ConnectionOptions
from transports.surfaces.mcp._options import Options
from transports.surfaces.web._access import Options as WebOptions
from transports.testing._failure_report import FailureReport
from webapp_fixture import Fixture

__all__ = ["abp", "era", "serve", "workbench"]


def test_evidence_setting_asks_each_app_for_what_it_supports(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(target: str, *, evidence: Evidence | None = None, own: str = "") -> Evidence | None:
        return evidence_for(evidence, own, target)

    assert with_default_evidence(connect, "") is connect
    connecting = with_default_evidence(connect, "trace=on-failure,console")
    assert connecting("http://127.0.0.1:1/") == Evidence(trace="on-failure", console="on")
    assert connecting("ws://127.0.0.1:1/") == connecting("mcp+stdio:run") == Evidence(console="on")
    assert connecting("mcp-docs") == Evidence(trace="on-failure", console="on")
    assert connecting("http://127.0.0.1:1/", evidence=None) is None
    # what an app's own entry says goes before that, and what the call says before both
    assert connecting("http://127.0.0.1:1/", own="har") == Evidence(har="on")
    assert connecting("wss://app.test/", own="har,console=on-failure") == Evidence(console="on-failure")
    assert connect("wss://app.test/", evidence=Evidence(video=True), own="console") == Evidence(video=True)
    assert "evidence" not in ConnectionOptions().connection()
    with pytest.raises(UsageError, match="'tracing' is not understood"):
        with_default_evidence(connect, "tracing")
    for variable, model in (("ABP_MCP_EVIDENCE", Options), ("ABP_SERVE_EVIDENCE", WebOptions)):
        monkeypatch.setenv(variable, "trace=never")
        with pytest.raises(UsageError, match=f'^{variable}: trace is "off", "on" or "on-failure"'):
            model.load()
        monkeypatch.setenv(variable, "trace,har=on-failure")
        assert model.load().evidence == "trace,har=on-failure"


def test_failure_report_includes_page_of_app_with_secrets(tmp_path: Path) -> None:
    class InPage(MemoryTransport):
        page = None

    report = FailureReport(tmp_path / "failed", artifacts=tmp_path / "out", recordings=tmp_path)
    asked: list[Coroutine[Any, Any, None]] = []
    report.watch_page(Guarded(InPage({}), Guard(Secrets({}))), asked.append)
    report.write()
    assert len(asked) == 1
    asked[0].close()


def test_cli_prints_evidence_location(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    call = ("call", workbench.ws_url, "job.run", "-p", "delay=1", "--evidence")
    ran = abp(*call, "console", "-p", "steps=2")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("Evidence, console: ")]
    path = Path(line.removeprefix("Evidence, console: "))
    assert ran.status == 0 and path.parent == tmp_path / "out" and "progress: " in path.read_text()
    failed = abp(*call, "console=on-failure", "-p", "steps=0", "--json")
    assert failed.status != 0 and "Evidence, console: " in failed.err
    assert [one["kind"] for one in failed.document["error"]["evidence"]] == ["console"]
    refused = abp(*call, "trace", "-p", "steps=1")
    assert refused.status == 2 and "trace need an app in a page; this one is reached by websocket" in refused.err
    assert "is not understood" in abp(*call, "film", "-p", "steps=1").err


async def test_agent_learns_where_failure_evidence_is(serve: Serve) -> None:
    async with serve(options={"evidence": "console=on-failure"}) as client:
        assert "evidence" not in await called(client, "abp_text_shout", text="hi")
        failed = await client.call_tool("abp_call", {"capability": "print.page", "params": {}})
        assert failed.is_error
        assert [one["kind"] for one in failed.structured_content["error"]["evidence"]] == ["console"]
