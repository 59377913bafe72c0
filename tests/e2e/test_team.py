"""A bridge for a team: people sign in once, by hand, and each of them is signed in apart from the others."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page

from tests.e2e.notebook import notebook
from tests.support.mcp_clients import called
from tests.support.mcp_http import ANN, BOB, USERS, client_of
from transports import connect
from transports.artifacts import open_store
from transports.session._named_apps import app_entries, find_app
from transports.session._settings import read_config
from transports.session._sign_in import sign_in
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._http import serve_http
from transports.surfaces.mcp._options import Options

pytestmark = pytest.mark.browser


async def signed_in(config: Path, name: str, done: Callable[[], Awaitable[object]]) -> Path:
    """Sign in as a person does, who is ``done`` once the page is there."""
    app = find_app(read_config(config), name, None)
    assert app is not None
    async with asyncio.timeout(60):
        return await sign_in(app, done, headless=True)


@pytest.mark.slow
@pytest.mark.usefixtures("whole_chromium")
async def test_bridge_keeps_logins_of_two_users_separate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[Page] = []
    new_page = BrowserContext.new_page

    async def noted(context: BrowserContext) -> Page:
        pages.append(await new_page(context))
        return pages[-1]

    async def press_enter() -> None:
        monkeypatch.undo()
        await pages[-1].wait_for_function("localStorage.getItem('note')")  # the person sees that it worked

    async def close_the_window() -> None:
        await press_enter()
        await pages[-1].close()
        await asyncio.Event().wait()

    config = tmp_path / "team.toml"
    scripts: list[str] = []
    async with notebook(scripts=scripts) as url:
        tables = [
            f'[apps.notes-{user}]\nurl = "{url}"\nusers = ["{user}"]\nstorage_state = "state/{user}.json"\n'
            for user in ("ann", "bob")
        ]
        config.write_text("\n".join(tables))
        named = app_entries(read_config(config))
        connecting = partial(connect, config=config)
        bridge = Bridge(Options(), open_store(tmp_path / "out"), connect=connecting, named=named)
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve_http(bridge, "127.0.0.1", 0, USERS, started.set_result))
        try:
            at = await started
            async with client_of(at, ANN, "2026-07-28") as ann, client_of(at, BOB, "legacy") as bob:
                refused = await ann.call_tool("abp_connect", {"name": "notes-ann"})
                error = refused.structured_content["error"]
                assert error["code"] == "PERMISSION_REQUIRED" and "abp login notes-ann" in error["message"]
                for user, done in (("ann", press_enter), ("bob", close_the_window)):
                    scripts.append(f"CAPABILITIES['note.write']({{ text: 'signed-{user}' }})")
                    monkeypatch.setattr(BrowserContext, "new_page", noted)
                    kept = await signed_in(config, f"notes-{user}", done)
                    assert kept == tmp_path / f"state/{user}.json" and stat.S_IMODE(kept.stat().st_mode) == 0o600
                    assert f"signed-{user}" in kept.read_text()
                for client, user in ((ann, "ann"), (bob, "bob")):
                    assert (await called(client, "abp_status"))["apps"] == [f"notes-{user}"]
                    connected = await called(client, "abp_connect", name=f"notes-{user}")
                    assert connected["name"] == f"notes-{user}" and "url" not in connected
                    read = await called(client, "abp_note_read")
                    assert read["data"]["cookie"] == read["data"]["storage"] == f"signed-{user}"
                    made = await called(client, "abp_note_file", size=10, seed=1)
                    assert (await called(client, "abp_artifacts"))["total"] == 2
                    shown = json.dumps([connected, read, made, await called(client, "abp_status")])
                    assert str(tmp_path / "state") not in shown
                for client, other in ((ann, "bob"), (bob, "ann")):
                    foreign = await client.call_tool("abp_connect", {"name": f"notes-{other}"})
                    assert foreign.structured_content["error"]["code"] == "NOT_FOUND"
        finally:
            serving.cancel()
            await asyncio.wait((serving,))


async def test_person_who_signs_in_at_another_origin_keeps_the_keyboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[Page] = []
    opened: list[str] = []
    new_page = BrowserContext.new_page

    async def noted(context: BrowserContext) -> Page:
        pages.append(await new_page(context))
        return pages[-1]

    scripts: list[str] = []
    async with notebook(scripts=scripts) as url, notebook() as other:
        scripts.append(f"localStorage.setItem('note', 'signed'); location.replace('{other}plain')")
        config = tmp_path / "team.toml"
        config.write_text(f'[apps.notes]\nurl = "{url}"\nstorage_state = "notes.json"\n')

        async def type_slowly() -> None:
            (page,) = pages
            await page.wait_for_url(f"{other}plain")
            assert page.context.browser is not None
            session = await page.context.browser.new_browser_cdp_session()
            session.on("Target.targetCreated", lambda event: opened.append(event["targetInfo"]["type"]))
            await session.send("Target.setDiscoverTargets", {"discover": True})
            opened.clear()
            await asyncio.sleep(1.2)  # it looks twice a second whether the windows are open
            assert not opened

        monkeypatch.setattr(BrowserContext, "new_page", noted)
        kept = await signed_in(config, "notes", type_slowly)
        assert "signed" in kept.read_text()


@pytest.mark.slow
async def test_sign_in_raises_error_of_its_waiter(tmp_path: Path) -> None:
    async def failing() -> None:
        raise KeyError("no person")

    config = tmp_path / "team.toml"
    async with notebook() as url:
        config.write_text(f'[apps.notes]\nurl = "{url}"\nstorage_state = "notes.json"\n')
        with pytest.raises(KeyError, match="no person"):
            await signed_in(config, "notes", failing)
    assert not (tmp_path / "notes.json").exists()
