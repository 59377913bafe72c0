"""Profiles that are kept, states that are brought along, and many sessions that never meet."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.notebook import notebook
from tests.support.rows import each_row
from transports import Browser, PlaywrightTransport, Session, UsageError, connect
from transports.errors import BrowserNotFound, ProfileInUse
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
#: For what the light Chromium has not: a lock on its profile, and all that a person keeps in one.
whole = pytest.mark.usefixtures("whole_chromium")

MB = 1 << 20


async def note(app: Session) -> dict[str, Any]:
    data = (await app.call("note.read")).data
    assert isinstance(data, dict)
    return data


# --- profiles ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@whole
async def test_a_signed_in_profile_survives_two_runs(tmp_path: Path) -> None:
    profile = tmp_path / "profiles" / "work"
    async with notebook() as url:
        async with connect(url, profile=profile, store=tmp_path / "out") as app:
            assert await note(app) == {"cookie": None, "storage": None, "state": None}
            await app.call("note.write", {"text": "signed-in"})
        assert stat.S_IMODE(profile.stat().st_mode) == 0o700  # it holds credentials
        for _ in range(2):
            async with connect(url, profile=str(profile), store=tmp_path / "out") as app:
                assert await note(app) == {"cookie": "signed-in", "storage": "signed-in", "state": None}
                await app.call("note.write", {"text": "signed-in"})
        async with connect(url, store=tmp_path / "out") as app:  # and nobody else has it
            assert (await note(app))["cookie"] is None


@pytest.mark.slow
@whole
async def test_sessions_sharing_a_profile_get_separate_files(fixture: Fixture, tmp_path: Path) -> None:
    """They share what is stored in the browser, yet not the folder that it writes large content to."""
    async with Browser(profile=tmp_path / "profile") as browser:

        async def one(seed: int) -> None:
            out = tmp_path / f"out{seed}"
            async with connect(fixture.url, browser=browser, store=out) as app:
                for size in (2 * MB, 12 * MB):
                    ref = (await app.call("file.generate", {"bytes": size, "seed": seed})).artifacts["file"]
                    assert ref.sha256 == digest(size, seed) and ref.path and ref.path.is_relative_to(out)
                assert app.transport.rungs["download"] == 2

        await asyncio.gather(*map(one, range(4)))
        assert browser.context is not None and len(browser.context.pages) == 1  # the one that it began with
        assert [path.name for path in browser.folder.iterdir() if path.is_file()] == ["in-use"]


@pytest.mark.slow
@whole
async def test_profile_in_use_error_says_what_to_do(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    async with notebook() as url:
        async with Browser(profile=profile):
            with pytest.raises(ProfileInUse, match=r"close that one.*another profile=.*cdp_url=") as caught:
                await connect(url, profile=profile, store=tmp_path / "out")
        assert caught.value.code == "BROWSER_ERROR" and caught.value.retryable
        assert str(profile) in caught.value.message
        async with connect(url, profile=profile, store=tmp_path / "out") as app:  # as it said
            await note(app)


@pytest.mark.slow
@whole
async def test_profile_left_by_dead_process_is_usable(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "SingletonLock").symlink_to("elsewhere-1")
    async with notebook() as url:
        with pytest.raises((ProfileInUse, BrowserNotFound)):  # another machine's: only that browser knows
            await connect(url, profile=profile, store=tmp_path / "out")
        for pid in ("999999999", "99999999999999999999", "²"):
            (profile / "SingletonLock").unlink(missing_ok=True)
            (profile / "SingletonLock").symlink_to(f"{socket.gethostname()}-{pid}")
            async with connect(url, profile=profile, store=tmp_path / "out") as app:
                await note(app)


async def test_profile_that_is_a_file_or_read_only_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="must be a folder"):
        await connect("http://127.0.0.1:1/", profile=tmp_path / "file", store=tmp_path / "out")
    with pytest.raises(UsageError, match="sub cannot be created: Not a directory"):
        await connect("http://127.0.0.1:1/", profile=tmp_path / "file" / "sub", store=tmp_path / "out")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path or mode != os.W_OK)
    with pytest.raises(UsageError, match="cannot be written to"):  # and not: it is in use
        await connect("http://127.0.0.1:1/", profile=tmp_path, store="none:")


# --- states -----------------------------------------------------------------------------------------------------------


async def test_a_storage_state_signs_in_from_a_value_or_a_file(browser: Browser, tmp_path: Path) -> None:
    async with notebook() as url:
        storage = [{"name": "note", "value": "brought-along"}]
        state: dict[str, Any] = {
            "cookies": [{**storage[0], "domain": "127.0.0.1", "path": "/"}],
            "origins": [{"origin": url.rstrip("/"), "localStorage": storage}],
        }
        file = tmp_path / "state.json"
        file.write_text(json.dumps(state))
        for way in (state, str(file)):
            async with connect(url, browser=browser, storage_state=way, store=tmp_path / "out") as app:
                assert await note(app) == {"cookie": "brought-along", "storage": "brought-along", "state": None}


@each_row("text", [None, "{", "[]", '{"secret": 1}'])
async def test_unreadable_storage_state_is_rejected(browser: Browser, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "state.json"
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=r"state\.json cannot be read") as caught:
        await connect("http://127.0.0.1:1/", browser=browser, storage_state=file, store=tmp_path / "out")
    assert "secret" not in caught.value.message


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-3k")
async def test_parallel_sessions_in_one_browser_stay_separate(browser: Browser, tmp_path: Path) -> None:
    before = set(browser.playwright.contexts)
    async with (
        notebook() as url,
        connect(url, browser=browser, store=tmp_path / "a") as first,
        connect(url, browser=browser, store=tmp_path / "b") as second,
    ):
        sessions = {"first": first, "second": second}
        await asyncio.gather(*(app.call("note.write", {"text": text}) for text, app in sessions.items()))
        for text, app in sessions.items():
            assert await note(app) == {"cookie": text, "storage": text, "state": None}
    assert not set(browser.playwright.contexts) - before


@pytest.mark.slow
@pytest.mark.parametrize("profile", [False, True])
async def test_callers_har_is_complete_when_session_ends(tmp_path: Path, profile: bool) -> None:
    """Playwright writes a HAR when its context is closed, and not when the browser is."""
    ours, theirs = tmp_path / "ours.har", tmp_path / "theirs.har"
    own_profile = tmp_path / "profile" if profile else None
    async with notebook() as url, connect(url, store=tmp_path / "out", profile=own_profile) as app:
        assert isinstance(app.transport, PlaywrightTransport) and app.transport.page is not None
        page = app.transport.page
        await page.context.route_from_har(ours, update=True)
        await page.evaluate("fetch('/?ours')")
        if not profile and page.context.browser is not None:
            context = await page.context.browser.new_context(record_har_path=theirs)
            await (await context.new_page()).goto(url + "?theirs")  # both are left open
    assert "?ours" in ours.read_text()
    assert profile or "?theirs" in theirs.read_text()
