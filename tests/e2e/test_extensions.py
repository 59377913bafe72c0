"""Chrome extensions: a folder is the target, its page the app."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from transports import Browser, Session, UsageError, connect
from transports.artifacts import open_store
from transports.errors import ABPError, ConnectFailed, ProfileInUse
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("whole_chromium")]

#: Any public key, and the id that Chromium derives from it.
KEY = base64.b64encode(b"any bytes are a key here").decode()


def chromium_id(data: bytes) -> str:
    return "".join(chr(ord("a") + int(digit, 16)) for digit in hashlib.sha256(data).hexdigest()[:32])


KEY_ID = chromium_id(base64.b64decode(KEY))
SHELF = Path(__file__).parents[1] / "support" / "extension"


def content(size: int) -> bytes:
    return (bytes((index * 31) % 253 for index in range(253)) * (size // 253 + 1))[:size]


async def told(app: Session, capability: str, **params: object) -> dict[str, Any]:
    data = (await app.call(capability, params)).data
    assert isinstance(data, dict)
    return data


def another(folder: Path, name: str, **changes: object) -> Path:
    """A copy of the extension under another name."""
    shutil.copytree(SHELF, folder)
    manifest = json.loads((SHELF / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "name": name, **changes}))
    return folder


@pytest.mark.requirement("R6-11a", "R6-11b", "R6-11c", "R6-11e")
@pytest.mark.parametrize(
    "target", [str(SHELF), pytest.param(f"extension:{SHELF}", marks=pytest.mark.slow)], ids=["folder", "extension:"]
)
async def test_extension_is_driven_like_any_app(target: str, tmp_path: Path) -> None:
    with_panel = another(tmp_path / "named", "Named")
    (with_panel / "pages").mkdir()
    html = (with_panel / "abp-app.html").read_text().replace("abp-app.js", "/abp-app.js")
    (with_panel / "pages" / "panel.html").write_text(html)
    (with_panel / "abp-app.html").unlink()
    with pytest.raises(UsageError, match=r"no page abp-app\.html.*extension_page="):
        connect(str(with_panel))
    async with Browser(extensions=[SHELF, with_panel]) as browser:
        async with connect(target, browser=browser, store=tmp_path / "out") as app:
            assert (app.info.name, app.info.version) == ("Shelf", "1.2.3")
            assert set(app.capabilities) >= {"shelf.small", "shelf.large", "shelf.ask"}
            assert app.transport.url and app.transport.url.startswith("chrome-extension://")
            for name, size in (("shelf.small", 1000), ("shelf.large", 3_000_000)):
                ref = (await app.call(name)).artifacts["file"]
                assert Path(str(ref.path)).read_bytes() == content(size)
            assert app.transport.rungs["download"] == 1
            data = content(500_000)
            assert await told(app, "shelf.measure", file=data) == {"size": len(data), "last": data[-1]}
            # What only an extension can do:
            asked = await told(app, "shelf.ask", text="hello")
            assert asked["answer"] == {"echoed": "hello", "from": app.transport.url}
            assert f"chrome-extension://{asked['id']}/abp-app.html" == app.transport.url
            assert await told(app, "shelf.put", key="a", value=1) == {"keys": ["a"]}
        page = "pages/panel.html?view=1"
        async with connect(str(with_panel), browser=browser, extension_page=page, store=tmp_path / "out") as app:
            assert app.transport.url and app.transport.url.endswith(f"/{page}")
        with pytest.raises(ABPError, match=r"has no page \.\./named/pages/panel\.html"):
            await connect(str(with_panel), browser=browser, extension_page="../named/pages/panel.html", store="none:")


@pytest.mark.slow
async def test_profile_keeps_extension_storage(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    async with connect(str(SHELF), profile=profile, store=tmp_path / "out") as app:
        await told(app, "shelf.put", key="book", value="kept")
        with pytest.raises(ProfileInUse):
            await connect(str(SHELF), profile=profile, store=tmp_path / "out")
    async with connect(str(SHELF), profile=profile, store=tmp_path / "out") as app:
        assert await told(app, "shelf.get", key="book") == {"value": "kept"}
    async with connect(str(SHELF), store=tmp_path / "out") as app:  # without a profile nothing is kept
        assert await told(app, "shelf.get", key="book") == {"value": None}


@pytest.mark.slow
async def test_several_extensions_work_in_one_browser(tmp_path: Path) -> None:
    second = another(tmp_path / "second", "Second", background={"service_worker": "worker.js"})
    quiet = another(tmp_path / "quiet", "Quiet")  # one without a service worker
    manifest = json.loads((quiet / "manifest.json").read_text())
    del manifest["background"]
    (quiet / "manifest.json").write_text(json.dumps(manifest))
    folders = {"Shelf": SHELF, "Second": second, "Quiet": quiet}
    async with Browser(extensions=list(folders.values())) as browser:

        async def one(name: str) -> str:
            async with connect(str(folders[name]), browser=browser, store=tmp_path / "out" / name) as app:
                assert app.info.name == name
                await told(app, "shelf.put", key="whose", value=name)
                ref = (await app.call("shelf.large")).artifacts["file"]
                assert Path(str(ref.path)).read_bytes() == content(3_000_000)
                assert await told(app, "shelf.get", key="whose") == {"value": name}
                return str(app.transport.url)

        assert len(set(await asyncio.gather(*map(one, folders)))) == 3


async def test_folder_without_extension_is_rejected_before_browser_starts(tmp_path: Path, browser: Browser) -> None:
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        connect(f"extension:{tmp_path}")
    with pytest.raises(UsageError, match="is not a target"):
        connect(str(tmp_path))
    with pytest.raises(UsageError, match="loads no Chrome extensions"):
        await connect(str(SHELF), browser="firefox", store=tmp_path / "out")
    with pytest.raises(UsageError, match="cdp_url="):
        connect(str(SHELF), cdp_url="http://127.0.0.1:9222")
    with pytest.raises(UsageError, match="for this target; use 'playwright'"):
        connect(str(SHELF), transport="postmessage")
    with pytest.raises(UsageError, match="started without extensions"):
        await connect(str(SHELF), browser=browser, store=tmp_path / "out")


@pytest.mark.slow
async def test_extension_rejected_by_chromium_says_why(tmp_path: Path) -> None:
    broken = another(tmp_path / "broken", "Broken", version="one")
    with pytest.raises(ConnectFailed, match=r"(?s)version.*Chrome or Edge.*use a Chromium") as caught:
        await connect(str(broken), store=tmp_path / "out")
    assert str(broken) in caught.value.message


# --- the bridge -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def bridge(store: Path, *apps: str) -> AsyncIterator[Any]:
    async with Client(Bridge(Options(apps=apps), open_store(store)).server) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"key": KEY}, {}], ids=["key", "no key"])
async def test_model_opens_pages_of_allowed_extension(tmp_path: Path, changes: dict[str, str]) -> None:
    folder = another(tmp_path / "shelf", "Panelled", **changes)
    (folder / "abp-app.html").rename(folder / "panel.html")
    async with bridge(tmp_path / "out", f"extension:{tmp_path / 'gone'}", f"extension:{folder}") as client:
        page = {"extensionPath": f"{folder}/../shelf", "abpPage": "panel.html"}
        opened = (await client.call_tool("abp_connect", page)).structured_content
        assert opened["app"]["name"] == "Panelled", opened
        again = (await client.call_tool("abp_connect", page)).structured_content
        assert (again["new"], again["session"]) == (False, opened["session"])
        asked = {"capability": "shelf.ask", "params": {"text": "hi"}, "session": opened["session"]}
        extension = (await client.call_tool("abp_call", asked)).structured_content["data"]["id"]
        assert extension == KEY_ID or not changes
        by_id = await client.call_tool("abp_connect", {"extensionId": extension, "abpPage": "panel.html"})
        assert by_id.structured_content["session"] == opened["session"]


@pytest.mark.requirement("R6-10g")
async def test_model_opens_nothing_but_allowed_extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else can be loaded: what the operator did not name, or is not there."""
    monkeypatch.setenv("ABP_BROWSER", str(tmp_path / "none"))  # no browser is needed to tell
    folder, keyed = another(tmp_path / "shelf", "Shelf"), another(tmp_path / "keyed", "Keyed", key=KEY)
    async with bridge(tmp_path / "out", f"extension:{tmp_path / 'gone'}", f"extension:{folder}", str(keyed)) as client:
        for allowed in (
            {"extensionPath": f"{folder}/../shelf"},
            {"extensionId": chromium_id(os.fsencode(folder))},
            {"extensionId": KEY_ID},
        ):
            answer = await client.call_tool("abp_connect", allowed)
            assert answer.structured_content["error"]["code"] == "BROWSER_ERROR", answer
        for arguments in (
            {"extensionPath": str(SHELF)},
            {"extensionPath": f"extension:{SHELF}"},
            {"extensionPath": "\0"},
            {"extensionPath": "~nobody-of-this-name/x"},
            {"extensionId": "abcdefghijklmnopabcdefghijklmnop"},
            {"extensionId": str(SHELF)},
            {"url": str(SHELF)},
            {"url": "http://127.0.0.1:9/", "abpPage": "panel.html"},
            {"url": "http://127.0.0.1:9/", "extensionPath": str(SHELF)},
        ):
            answer = await client.call_tool("abp_connect", arguments)
            assert answer.is_error, arguments
            assert answer.structured_content["error"]["code"] == "INVALID_PARAMS", answer
