"""A whole job over the MCP bridge, from connecting to disconnecting, in a real browser, by clients of both eras."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

from tests.support.eventually import eventually
from tests.support.mcp_clients import ERAS, called, links_of, read_as_resource
from tests.support.slow import slow_but
from transports import Browser, connect
from transports.artifacts import open_store
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_connect_list_call_progress_cancel_elicit_read_upload_disconnect(
    fixture: Fixture, browser: Browser, tmp_path: Path, era: str
) -> None:
    asked: list[str] = []

    async def person(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"confirmed": True})

    async def model(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        content = params.messages[0].content
        assert isinstance(content, TextContent)
        return CreateMessageResult(role="assistant", content=TextContent(text=content.text.upper()), model="test")

    bridge = Bridge(Options(), open_store(tmp_path / "out"), connect=partial(connect, browser=browser))
    async with Client(bridge.server, mode=era, elicitation_callback=person, sampling_callback=model) as client:
        # connect, list
        session = (await called(client, "abp_connect", url=fixture.url))["session"]
        assert {"abp_export_pdf", "abp_job_run"} <= {tool.name for tool in (await client.list_tools()).tools}

        # call
        answer = await client.call_tool("abp_export_pdf", {"html": "<h1>Hi</h1>", "session": session})
        assert not answer.is_error, answer
        (pdf,) = [link for link in links_of(answer) if link.mime_type == "application/pdf"]

        # progress
        reported: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reported.append(progress)

        await client.call_tool("abp_job_run", {"steps": 3, "delay": 10}, progress_callback=on_progress)
        assert reported == [1, 2, 3]

        # cancel
        async def record(what: str, capability: str) -> bool:
            data = (await called(client, "abp_app_record"))["data"]
            return any(one["capability"] == capability for one in data[what])

        waiting = asyncio.ensure_future(client.call_tool("abp_job_wait", {}))
        await eventually(lambda: record("calls", "job.wait"))
        waiting.cancel()
        await asyncio.wait((waiting,))

        async def cancelled() -> bool:
            return bool((await called(client, "abp_app_record"))["data"]["cancelled"])

        await eventually(cancelled)

        # elicit: a person, then the client's model
        assert (await called(client, "abp_files_clear"))["data"]["cleared"] > 0
        assert len(asked) == 1 and "from the list?" in asked[0] and "Destructive: " in asked[0]
        prompt = {"method": "sampling/create", "params": {"prompt": "say it louder"}}
        said = await called(client, "abp_call", capability="form.ask", params=prompt)
        assert said["data"]["response"] == {"success": True, "data": {"result": "SAY IT LOUDER"}}

        # read the resource
        data = await read_as_resource(client, pdf.uri)
        assert data.startswith(b"%PDF") and len(data) == pdf.size

        # upload: what was produced, and something new
        sha256 = hashlib.sha256(data).hexdigest()
        files = [{"param": "file", "artifact": pdf.uri}]
        assert (await called(client, "abp_file_digest", files=files))["data"]["sha256"] == sha256
        files = [{"param": "file", "name": "a.bin", "content": base64.b64encode(data).decode()}]
        assert (await called(client, "abp_file_digest", files=files))["data"]["sha256"] == sha256

        # disconnect
        await called(client, "abp_disconnect", session=session)
        assert (await called(client, "abp_status"))["sessions"] == []
        assert await read_as_resource(client, pdf.uri) == data
