"""What only a page can do, recorded and replayed without one: effects, its tools, a manifest, what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from transports import ABPError, Browser, PlaywrightTransport, Session, connect
from transports.errors import Disconnected, NotAbpApp
from transports.session._events import ConnectionChanged
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def see_effects(app: Session) -> object:
    steps = [{"kind": "confirm", "message": "Sure?"}, {"kind": "download"}, {"kind": "print"}]
    result = await app.call("fault.native_ui", {"do": steps})
    files = {name: (ref.sha256, ref.mime_type, ref.size_bytes) for name, ref in result.artifacts.items()}
    effects = [(effect.kind, effect.call is None, {**effect.detail}) for effect in result.effects]
    assert {kind for kind, _, _ in effects} >= {"dialog", "download", "print"} and len(files) >= 2
    return files, effects, result.data


async def see_page_tools(app: Session) -> object:
    picture = await app.screenshot(full_page=True)
    document = await app.render_to_pdf("<h1>Hi</h1>", format="A4")
    with pytest.raises(ABPError):
        await app.screenshot(full_page="often")  # type: ignore[arg-type]
    return picture.artifacts["image"].sha256, document.artifacts["document"].sha256


async def see_manifest(app: Session) -> object:
    return app.warnings, {name: app.capabilities[name] for name in app.capabilities}, app.info


async def see_reconnection(app: Session) -> object:
    async with app.events() as events:
        with pytest.raises(Disconnected) as caught:
            await app.call("fault.navigate", {"how": "reload"})
        await app.call("file.list")
        await app.aclose()
        assert [event.connected async for event in events if isinstance(event, ConnectionChanged)] == [False, True]
    return type(caught.value), caught.value.as_dict()


async def test_page_calls_are_replayed(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    async def see_all(app: Session) -> list[object]:
        return [await see(app) for see in (see_manifest, see_effects, see_page_tools, see_reconnection)]

    file, page = tmp_path / "page.jsonl", PlaywrightTransport(fixture.url, browser=browser)
    async with connect(fixture.url, transport=page, record=file, store=tmp_path / "recorded") as app:
        recorded = await see_all(app)
    async with connect(f"replay:{file}", store=tmp_path / "replayed") as app:
        assert await see_all(app) == recorded


@pytest.mark.slow
async def test_a_failed_connection_is_replayed(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    url, file = f"{fixture.url}static/blank.html", tmp_path / "page.jsonl"
    words = []
    for session in (
        connect(
            url, transport=PlaywrightTransport(url, browser=browser, grace=0.2), record=file, store=tmp_path / "out"
        ),
        connect(f"replay:{file}", store=tmp_path / "out"),
    ):
        with pytest.raises(NotAbpApp) as caught:
            await session.__aenter__()
        words.append(caught.value.as_dict())
    assert words[0] == words[1]
