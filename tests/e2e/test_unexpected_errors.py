"""A store or a handler raises what nobody expects while a view waits for its answer: the view gets an error."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.web_client import TOKEN, Web
from transports import Browser, connect
from transports.artifacts import MemoryStore
from transports.session._named_apps import find_app
from transports.session._settings import read_config
from transports.session._sign_in import sign_in
from transports.surfaces.web._access import Options
from transports.surfaces.web._server import serve as serve_gallery
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LINK = {"contents": [{"type": "resource_link", "uri": "data://report.csv", "name": "report"}]}
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hi"}]}


class FailingStore(MemoryStore):
    full = False

    def _stage(self) -> Any:
        if FailingStore.full:
            raise KeyError("no room")
        return super()._stage()


async def fail(message: Mapping[str, object]) -> bool:
    pytest.fail("the handler fails")  # no Exception


async def test_view_gets_error_for_any_exception(
    browser: Browser, views_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        connect(views_address, browser=browser, store=FailingStore()) as app,
        app.open_view("board", on_message=fail) as view,
    ):
        monkeypatch.setattr(FailingStore, "full", True)
        for method, params, kind in (("ui/download-file", LINK, "KeyError"), ("ui/message", MESSAGE, "Failed")):
            async with asyncio.timeout(20):
                answer = await view.frame.evaluate("([method, params]) => rpc(method, params)", [method, params])
            assert answer["error"] == {"code": -32603, "message": f"the host failed ({kind})"}
        assert view.files == ()


@pytest.mark.slow
async def test_sign_in_raises_error_of_its_waiter(fixture: Fixture, tmp_path: Path) -> None:
    async def failing() -> None:
        raise KeyError("no person")

    config = tmp_path / "abp.toml"
    config.write_text(f'[apps.notes]\nurl = "{fixture.url}"\nstorage_state = "state.json"\n')
    app = find_app(read_config(config), "notes", None)
    assert app is not None
    async with asyncio.timeout(60):
        with pytest.raises(KeyError, match="no person"):
            await sign_in(app, failing, headless=True)
    assert not (tmp_path / "state.json").exists()


async def test_call_keeps_result_when_its_view_fails(views_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(size: int) -> str:
        raise KeyError("no name")

    store = MemoryStore()
    async with (
        serve_gallery(store, Options(token=TOKEN, key="k" * 32), connect=connect) as served,
        aiohttp.ClientSession() as http,
        asyncio.timeout(60),
    ):
        web = Web(served, store, http)
        session = (await served.apps.connect(views_address, {})).key
        monkeypatch.setattr(secrets, "token_hex", failing)
        call = await web.post(f"/apps/{session}/calls", {"capability": "board", "params": {"n": 1}, "view": True})
        ended = (await web.get(f"/calls/{call.json['id']}?wait=30")).json
        shown = await web.get(f"/views/{call.json['id']}?theme=light&locale=en&timezone=UTC&width=400&height=300")
    assert ended["status"] == "completed"
    assert ended["result"]["warnings"] == ["the view is not shown: it failed: 'no name'"]
    assert "it failed: 'no name'" in shown.json["error"]["message"]
