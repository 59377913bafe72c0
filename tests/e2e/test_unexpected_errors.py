"""A store or a handler raises what nobody expects while a view waits for its answer: the view gets an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from transports import Browser, connect
from transports.artifacts import MemoryStore
from transports.session import find_app, read_config, sign_in
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LINK = {"contents": [{"type": "resource_link", "uri": "data://report.csv", "name": "report"}]}
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hi"}]}


class FailingStore(MemoryStore):
    full = False

    async def _new_staged(self) -> Any:
        if FailingStore.full:
            raise KeyError("no room")
        return await super()._new_staged()


async def fail(message: Mapping[str, object]) -> bool:
    pytest.fail("the handler fails")  # no Exception


async def test_a_view_gets_an_error_whatever_is_raised(
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


async def test_a_sign_in_ends_with_the_error_of_what_waits_for_its_end(fixture: Fixture, tmp_path: Path) -> None:
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
