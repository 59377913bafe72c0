"""Views and pages that are recorded, and replayed without their server or page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.canned_view import viewing
from transports import ABPError, Browser, CapabilityError, PlaywrightTransport, Recording, Session, UsageError, connect
from transports._internal.masking import KNOWN_SECRETS, record_given_secret
from transports.errors import Disconnected, NotAbpApp, NotRecorded
from transports.session._events import ConnectionChanged
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ASK = "([method, params]) => rpc(method, params)"
#: A text that a recording keeps in a file.
LONG = "long " * 20_000 + "end"
LINK = {"contents": [{"type": "resource_link", "uri": "data://report.csv", "name": "report"}]}


def secret(key: str, **more: object) -> tuple[str, dict[str, object]]:
    return ("tools/call", {"name": "secret", "arguments": {"key": key}, **more})


def is_recorded(text: str, file: Path) -> bool:
    contents = [path.read_bytes() for path in file.parent.glob(f"{file.name}*/**/*") if path.is_file()]
    return any(text.encode() in content for content in [file.read_bytes(), *contents])


async def test_view_opens_from_recording_without_server_and_unless_it_differs(
    browser: Browser, tmp_path: Path, views_address: str
) -> None:
    file, store, params = tmp_path / "views.jsonl", tmp_path / "store", {"n": 4, "note": LONG}
    seen = []
    for where in (views_address, f"replay:{file}"):
        is_replay = where.startswith("replay:")
        async with connect(where, browser=browser, store=store, record=None if is_replay else file) as app:
            if not is_replay:
                await app.call("legacy")
            async with app.open_view("board", params, theme="dark") as view:
                assert app.capabilities["board"].view == "ui://views/board.html"
                heard = await view.frame.evaluate("heard.filter((one) => one.id === undefined)")
                files = [ref.sha256 for ref in view.result.artifacts.values()]
                # A view's own timers decide how often it asks.
                for number, key in enumerate(("b", "b", "a", "b") if is_replay else ("a", "b")):
                    answer = await view.frame.evaluate(ASK, secret(key, _meta={"progressToken": number}))
                    assert answer["result"]["content"][0]["text"] == f"for views: {key}"
                refused = await view.frame.evaluate(ASK, ["tools/call", {"name": "model_only", "arguments": {}}])
                assert (await view.frame.evaluate(ASK, ["ui/download-file", LINK]))["result"] == {}
                (report,) = view.files
                assert report.path is not None and report.path.read_text() == "a,b\n1,2\n"
                assert (await view.call("echo", {"text": "ü"})).data == {"text": "ü"}  # the view itself is alive
                seen.append((heard, view.result.data, files, refused["error"]))
                if is_replay:
                    other = await view.frame.evaluate(ASK, secret("c"))
                    assert "record again" in other["error"]["message"]
            if is_replay:
                with pytest.raises(NotRecorded, match="requested once more"):
                    async with app.open_view("board", params):
                        pass
                with pytest.raises(NotRecorded, match="recorded without its view"):
                    async with app.open_view("legacy"):
                        pass
    assert seen[0] == seen[1]
    text, picture = seen[0][0][1]["params"]["content"]
    assert text["text"] == f"n is 4 {LONG}" and picture["data"].startswith("AAAA")


async def test_secrets_reach_neither_view_nor_recording_and_redacted_document_is_named(
    browser: Browser,
    tmp_path: Path,
    views_address: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    canary, name = "canary-7f3a-value", "${SECRET:CRM}"
    monkeypatch.setenv("CANARY", canary)
    (config := tmp_path / "abp.toml").write_text('[secrets.CRM]\nenv = "CANARY"\norigins = ["http://app.test"]\n')
    record_given_secret(None, "CRM", canary)  # as if the user had used it
    file, store = tmp_path / "views.jsonl", tmp_path / "store"
    patterns = [r"for views: (?P<secret>rose\w+)", r"cdn\.example(?P<secret>/\w+)"]  # the second in one document
    recording = Recording(file, fields=["key"], patterns=patterns)
    try:
        async with connect(views_address, browser=browser, store=store, config=config, record=recording) as app:
            async with app.open_view("board", {"note": canary}) as view:
                heard = await view.frame.evaluate("heard")
                assert heard[0]["params"]["arguments"] == {"note": name}
                assert heard[1]["params"]["content"][0]["text"] == f"n is 1 {name}"
                # A view cannot have a value sent.
                for key, sent in (("rosebud", "rosebud"), (canary, name), (name, name)):
                    answer = await view.frame.evaluate(ASK, secret(key))
                    assert answer["result"]["content"][0]["text"] == f"for views: {sent}"
            with pytest.raises(NotAbpApp, match=r"stayed blank for [\d.]+ s: [^;]+(; [^;]+)?$"):
                async with app.open_view("forbidden", timeout=3):
                    pass
        (said,) = [record.message for record in caplog.records if record.name == "transports.recording"]
        assert said == (
            "ui://views/forbidden.html has texts that look like secrets; they are recorded as <redacted>, "
            "and its script may fail in a replay"
        )
        assert is_recorded("<redacted>", file) and not is_recorded("rosebud", file) and not is_recorded(canary, file)
        async with connect(f"replay:{file}", browser=browser, store=store) as app:
            async with app.open_view("board", {"note": name}) as view:
                answer = await view.frame.evaluate(ASK, secret("any other"))
                assert answer["result"]["content"][0]["text"] == "for views: <redacted>"
                assert "<redacted>" not in str(view.warnings)
            with pytest.raises(NotAbpApp, match="; the recording has <redacted> in place of some texts of the view"):
                async with app.open_view("forbidden", timeout=3):
                    pass
    finally:
        KNOWN_SECRETS.forget()


async def test_server_resources_are_recorded_and_replay_takes_only_options_of_views(
    tmp_path: Path, views_address: str
) -> None:
    file = tmp_path / "resources.jsonl"
    seen: list[Any] = []
    for where in (views_address, f"replay:{file}"):
        record = None if where.startswith("replay:") else file
        async with connect(where, store=tmp_path / "store", record=record) as app:
            listed = [(one.uri, one.mime_type) for one in await app.resources.list()]
            templates = [*await app.resources.templates()]
            read = await app.resources.read("data://report.csv")
            with pytest.raises(CapabilityError) as caught:
                await app.resources.read("data://nothing")
            seen.append((listed, templates, read.data, caught.value.code))
    assert seen[0] == seen[1] and ("data://report.csv", "text/csv") in seen[0][0]
    with pytest.raises(NotRecorded):
        async with connect(f"replay:{file}", store=tmp_path / "store") as app:
            await app.resources.read("data://report.csv", fresh=True)
            await app.resources.read("data://other")
    with pytest.raises(UsageError, match="profile= cannot be combined with a recording"):
        connect(f"replay:{file}", profile=tmp_path / "profile")
    header = {"abp_recording": 1, "transport": "playwright"}
    (page := tmp_path / "page.jsonl").write_text(json.dumps(header) + "\n")
    with pytest.raises(UsageError, match="which needs no browser"):
        connect(f"replay:{page}", browser="chromium")


async def test_minified_view_code_is_recorded_byte_for_byte(browser: Browser, tmp_path: Path) -> None:
    # As minifiers write it, which looks like credentials in addresses and headers.
    code = (
        "var q={key:null};q.key===null&&(q.token=1);var u='?token='+q.key+'&password='+q.token;"
        "if(u&&q.api_key!==u){q.authorization='Bearer '+u}/*Cookie: a=b*/"
    ) * 1000
    file = tmp_path / "recorded.jsonl"
    where = viewing(tmp_path, "start();", head=f"<script>{code}</script>")
    seen = []
    for source, record in ((where, file), (f"replay:{file}", None)):
        async with (
            connect(source, browser=browser, store=tmp_path / "store", record=record) as app,
            app.open_view("go") as view,
        ):
            assert view.warnings == ()
            seen.append(await view.frame.content())
    assert seen[0] == seen[1] and code in seen[1].replace("&amp;", "&")


# --- pages ------------------------------------------------------------------------------------------------------------


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
