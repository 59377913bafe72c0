"""What only a page can do, recorded and replayed without one: effects, its tools, a manifest, what is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from transports import ABPError, Browser, PlaywrightTransport, Session, connect
from transports.errors import Disconnected, NotAbpApp
from transports.session._events import ConnectionChanged
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Make = Callable[[], Session]


@pytest.fixture
def makers(fixture: Fixture, browser: Browser, tmp_path: Path) -> tuple[Make, Make]:
    """The app in a page, recorded; and the recording."""
    return (
        lambda: connect(
            fixture.url,
            transport=PlaywrightTransport(fixture.url, browser=browser),
            record=tmp_path / "page.jsonl",
            store=tmp_path / "recorded",
        ),
        lambda: connect(f"replay:{tmp_path / 'page.jsonl'}", store=tmp_path / "replayed"),
    )


async def test_effects_and_outputs_are_replayed(makers: tuple[Make, Make]) -> None:
    steps = [{"kind": "confirm", "message": "Sure?"}, {"kind": "download"}, {"kind": "print"}]
    seen = []
    for make in makers:
        async with make() as app:
            result = await app.call("fault.native_ui", {"do": steps})
            files = {name: (ref.sha256, ref.mime_type, ref.size_bytes) for name, ref in result.artifacts.items()}
            effects = [(effect.kind, effect.call is None, {**effect.detail}) for effect in result.effects]
            seen.append((files, effects, result.data))
    assert seen[0] == seen[1]
    assert {kind for kind, _, _ in seen[0][1]} >= {"dialog", "download", "print"} and len(seen[0][0]) >= 2


async def test_page_tools_are_replayed(makers: tuple[Make, Make]) -> None:
    seen = []
    for make in makers:
        async with make() as app:
            picture = await app.screenshot(full_page=True)
            document = await app.render_to_pdf("<h1>Hi</h1>", format="A4")
            with pytest.raises(ABPError):
                await app.screenshot(full_page="often")  # type: ignore[arg-type]
            seen.append((picture.artifacts["image"].sha256, document.artifacts["document"].sha256))
    assert seen[0] == seen[1]


async def test_the_manifest_is_replayed(makers: tuple[Make, Make]) -> None:
    seen = []
    for make in makers:
        async with make() as app:
            seen.append((app.warnings, {name: app.capabilities[name] for name in app.capabilities}, app.info))
    assert seen[0] == seen[1]


async def test_a_reconnection_is_replayed(makers: tuple[Make, Make]) -> None:
    seen = []
    for make in makers:
        async with make() as app, app.events() as events:
            with pytest.raises(Disconnected) as caught:
                await app.call("fault.navigate", {"how": "reload"})
            await app.call("file.list")
            await app.aclose()
            connected = [event.connected async for event in events if isinstance(event, ConnectionChanged)]
        seen.append((type(caught.value), caught.value.as_dict(), connected))
    assert seen[0] == seen[1] and seen[0][2] == [False, True]


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
