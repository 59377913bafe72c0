"""Tools for models with real apps: a page in Chromium, an MCP server and its view."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from transports import Browser, connect
from transports.agents import AppTools, openai_tools
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAGES = "<h1>Sales</h1><p>They grew.</p><h1 style='break-before: page'>Costs</h1><p>They fell.</p>"


async def test_scripted_agent_exports_pdf_reads_page_and_sees_pictures(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    """Responses of OpenAI; the bytes that the model sees are text and the pictures that it asked for."""
    async with connect(fixture.url, browser=browser, store=tmp_path / "out") as app:
        strict_tools = openai_tools(app, api="responses", strict=True)
        seen: list[str] = []

        async def call(name: str, **arguments: object) -> Any:
            made = {
                "type": "function_call",
                "call_id": str(len(seen)),
                "name": name,
                "arguments": json.dumps(arguments),
            }
            message, answer = await strict_tools.answer_with(made)
            seen.append(json.dumps(message))
            assert not answer.is_error, answer.text
            return answer

        printed = await call("abp_export_pdf", html=PAGES, options=None, title="Report")
        ref = printed.result.artifact()
        content = ref.path.read_bytes()
        page = await call("abp_read_artifact", id=ref.uri, page=2, offset=None, picture=True)
        assert page.text == f"Page 2 of 2 of {ref.filename}:\nCosts\nThey fell."
        (picture,) = page.attachments
        assert picture.data.startswith(b"\x89PNG") and f"data:image/png;base64,{picture.base64}" in seen[1]
        digest = await call("abp_file_digest", file=ref.uri)
        assert digest.result.data["sha256"] == ref.sha256 and digest.result.data["size"] == len(content)
        assert base64.b64encode(content[:30]).decode()[:36] not in "".join(seen)
        assert sum(map(len, seen)) < 4000 + len(picture.base64)

        tools = AppTools(app, {})
        chart = await tools.call("abp_chart_render", {"csv": "Month,Online\nJan,120\nFeb,150\n"})
        assert chart.result is not None
        (picture,), ref = chart.attachments, chart.result.artifact()
        assert picture.data == await app.store.get(ref) and picture.mime_type == "image/png"
        half = await tools.call("abp_image_resize", {"image": ref.id, "width": 400})
        assert half.result is not None and isinstance(half.result.data, dict) and half.result.data["width"] == 400
        again = await tools.call("abp_read_artifact", {"id": ref.id})
        assert [one.data for one in again.attachments] == [picture.data]
