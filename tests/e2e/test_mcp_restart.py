"""``abp mcp`` killed and started again with ``--state``: an agent goes on."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.e2e.test_mcp_stdio import ABP, HELLO, Bridge, environment
from tests.support.mcp_clients import files_of
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@contextmanager
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    """A bridge that is killed at the end."""
    command = [*ABP, "--state", str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
        spoken = Bridge(process)
        try:
            spoken.ask("initialize", HELLO)
            yield spoken
        finally:
            process.kill()


def tool(spoken: Bridge, name: str, **arguments: object) -> Any:
    answer = spoken.ask("tools/call", {"name": name, "arguments": arguments})
    return {**answer["structuredContent"], "failed": answer.get("isError", False)}


def before(tmp_path: Path, url: str) -> dict[str, Any]:
    with bridge(tmp_path) as spoken:
        session = tool(spoken, "abp_connect", url=url)["session"]
        rows = [{"a": 1}]
        done = tool(spoken, "abp_call", capability="data.csv", params={"rows": rows}, detach=True)["call"]
        while (result := tool(spoken, "abp_result", call=done)).get("status") == "working":
            pass
        lost = tool(spoken, "abp_call", capability="job.wait", detach=True)["call"]
        while not any(call["capability"] == "job.wait" for call in record(spoken)["calls"]):
            pass
        return {"session": session, "done": done, "lost": lost, "result": result}


def record(spoken: Bridge) -> Any:
    return tool(spoken, "abp_call", capability="app.record")["data"]


def after(tmp_path: Path, known: dict[str, Any]) -> None:
    with bridge(tmp_path) as spoken:
        status = tool(spoken, "abp_status")
        assert status["sessions"] == [{"session": known["session"], "connected": False}]
        states = {one["call"]: one["status"] for one in status["calls"]}
        assert states == {known["done"]: "completed", known["lost"]: "unknown"}
        assert tool(spoken, "abp_result", call=known["done"]) == known["result"]
        (file,) = [one for one in files_of(known["result"]) if one["mime_type"] == "text/csv"]
        read = spoken.ask("tools/call", {"name": "abp_read_artifact", "arguments": {"id": file["id"]}})
        # Control characters are not shown to a model.
        assert read["content"][1]["text"] == "a\n1\n"
        unknown = tool(spoken, "abp_result", call=known["lost"])
        assert unknown["failed"] and unknown["error"]["code"] == "OUTCOME_UNKNOWN"
        again = tool(spoken, "abp_call", session=known["session"], capability="app.record")
        assert not again["failed"] and again["session"] == known["session"]
        assert "opened again" in again["warnings"][-1]
        assert [call["capability"] for call in again["data"]["calls"]] == ["app.record"]  # nothing was sent again


@pytest.mark.slow
async def test_killed_bridge_resumes_with_its_state(fixture: Fixture, tmp_path: Path) -> None:
    known = await asyncio.to_thread(before, tmp_path, fixture.ws_url)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    await asyncio.to_thread(after, tmp_path, known)
