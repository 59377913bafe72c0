"""Views that are opened from a recording, without their server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.canned_view import viewing
from tests.support.slow import slow_but
from transports import Browser, CapabilityError, Recording, UsageError, connect
from transports._internal.masking import KNOWN_SECRETS, record_given_secret
from transports.errors import NotAbpApp, NotRecorded

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ASK = "([method, params]) => rpc(method, params)"
#: A text that a recording keeps in a file.
LONG = "long " * 20_000 + "end"
LINK = {"contents": [{"type": "resource_link", "uri": "data://report.csv", "name": "report"}]}


def secret(key: str) -> tuple[str, dict[str, object]]:
    return ("tools/call", {"name": "secret", "arguments": {"key": key}})


def is_recorded(text: str, file: Path) -> bool:
    contents = [path.read_bytes() for path in file.parent.glob(f"{file.name}*/**/*") if path.is_file()]
    return any(text.encode() in content for content in [file.read_bytes(), *contents])


async def test_view_opens_from_recording_without_server(browser: Browser, tmp_path: Path, views_address: str) -> None:
    file, store = tmp_path / "views.jsonl", tmp_path / "store"
    seen = []
    for where in (views_address, f"replay:{file}"):
        record = file if not where.startswith("replay:") else None
        async with (
            connect(where, browser=browser, store=store, record=record) as app,
            app.open_view("board", {"n": 4}, theme="dark") as view,
        ):
            assert app.capabilities["board"].view == "ui://views/board.html"
            heard = await view.frame.evaluate("heard.filter((one) => one.id === undefined)")
            (picture,) = view.result.artifacts.values()
            relayed = [await view.frame.evaluate(ASK, secret(key)) for key in ("a", "b")]
            refused = await view.frame.evaluate(ASK, ["tools/call", {"name": "model_only", "arguments": {}}])
            assert (await view.frame.evaluate(ASK, ["ui/download-file", LINK]))["result"] == {}
            (report,) = view.files
            assert report.path is not None and report.path.read_text() == "a,b\n1,2\n"
            assert (await view.call("echo", {"text": "ü"})).data == {"text": "ü"}  # the view itself is alive
            shown = [one["result"]["content"] for one in relayed]
            seen.append((heard, view.result.data, picture.sha256, shown, refused["error"]))
    assert seen[0] == seen[1] and seen[0][0][1]["params"]["content"][1]["data"].startswith("AAAA")


async def test_replayed_view_rejects_extra_or_different_calls(
    browser: Browser, tmp_path: Path, views_address: str
) -> None:
    file = tmp_path / "views.jsonl"
    async with connect(views_address, browser=browser, store=tmp_path / "store", record=file) as app:
        await app.call("legacy")
        async with app.open_view("board", {"note": LONG}) as view:
            for key in ("a", "b"):
                await view.frame.evaluate(ASK, secret(key))
    async with connect(f"replay:{file}", browser=browser, store=tmp_path / "store") as app:
        async with app.open_view("board", {"note": LONG}) as view:
            assert await view.frame.evaluate("heard[1].params.content[0].text") == f"n is 1 {LONG}"
            for number, key in enumerate(("b", "b", "a", "b")):  # a view's own timers decide how often it asks
                method, params = secret(key)
                asked = [method, {**params, "_meta": {"progressToken": number}}]
                answer = await view.frame.evaluate(ASK, asked)
                assert answer["result"]["content"][0]["text"] == f"for views: {key}"
            other = await view.frame.evaluate(ASK, secret("c"))
            assert "record again" in other["error"]["message"]
        with pytest.raises(NotRecorded, match="requested once more"):
            async with app.open_view("board", {"note": LONG}):
                pass
        with pytest.raises(NotRecorded, match="recorded without its view"):
            async with app.open_view("legacy"):
                pass


async def test_view_secrets_do_not_reach_recording(browser: Browser, tmp_path: Path, views_address: str) -> None:
    file = tmp_path / "views.jsonl"
    recording = Recording(file, fields=["key"], patterns=[r"for views: (?P<secret>\w+)"])
    async with (
        connect(views_address, browser=browser, store=tmp_path / "store", record=recording) as app,
        app.open_view("board") as view,
    ):
        answer = await view.frame.evaluate(ASK, secret("rosebud"))
        assert answer["result"]["content"][0]["text"] == "for views: rosebud"
    assert is_recorded("<redacted>", file) and not is_recorded("rosebud", file)
    async with (
        connect(f"replay:{file}", browser=browser, store=tmp_path / "store") as app,
        app.open_view("board") as view,
    ):
        answer = await view.frame.evaluate(ASK, secret("any other"))
        assert answer["result"]["content"][0]["text"] == "for views: <redacted>"


async def test_secret_value_reaches_neither_view_nor_recording(
    browser: Browser, tmp_path: Path, views_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-7f3a-value"
    monkeypatch.setenv("CANARY", canary)
    (config := tmp_path / "abp.toml").write_text('[secrets.CRM]\nenv = "CANARY"\norigins = ["http://app.test"]\n')
    record_given_secret(None, "CRM", canary)  # as if the user had used it
    file = tmp_path / "views.jsonl"
    try:
        async with (
            connect(views_address, browser=browser, store=tmp_path / "store", config=config, record=file) as app,
            app.open_view("board", {"note": canary}) as view,
        ):
            heard = await view.frame.evaluate("heard")
            assert heard[0]["params"]["arguments"] == {"note": "${SECRET:CRM}"}
            assert heard[1]["params"]["content"][0]["text"] == "n is 1 ${SECRET:CRM}"
            for key in (canary, "${SECRET:CRM}"):  # a view cannot have a value sent
                answer = await view.frame.evaluate(ASK, secret(key))
                assert answer["result"]["content"][0]["text"] == "for views: ${SECRET:CRM}"
    finally:
        KNOWN_SECRETS.forget()
    assert not is_recorded(canary, file)


async def test_server_resources_are_recorded_and_replayed(tmp_path: Path, views_address: str) -> None:
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


async def test_replay_accepts_only_view_options(tmp_path: Path, views_address: str) -> None:
    file = tmp_path / "server.jsonl"
    async with connect(views_address, store=tmp_path / "store", record=file):
        pass
    with pytest.raises(UsageError, match="profile= cannot be combined with a recording"):
        connect(f"replay:{file}", profile=tmp_path / "profile")
    header = {"abp_recording": 1, "transport": "playwright"}
    (page := tmp_path / "page.jsonl").write_text(json.dumps(header) + "\n")
    with pytest.raises(UsageError, match="which needs no browser"):
        connect(f"replay:{page}", browser="chromium")


#: Code as minifiers write it, which looks like credentials in addresses and headers.
_MINIFIED = (
    "var q={key:null};q.key===null&&(q.token=1);var u='?token='+q.key+'&password='+q.token;"
    "if(u&&q.api_key!==u){q.authorization='Bearer '+u}/*Cookie: a=b*/"
)


@pytest.mark.parametrize("size", slow_but([1, 1 << 20], 1 << 20))
async def test_minified_view_code_is_recorded_byte_for_byte(browser: Browser, tmp_path: Path, size: int) -> None:
    code = _MINIFIED * -(-size // len(_MINIFIED))
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


async def test_redacted_view_document_is_named_in_warning(
    browser: Browser, tmp_path: Path, caplog: pytest.LogCaptureFixture, views_address: str
) -> None:
    file = tmp_path / "views.jsonl"
    recording = Recording(file, patterns=[r"cdn\.example(?P<secret>/\w+)"])  # in one of the two documents
    async with connect(views_address, browser=browser, store=tmp_path / "store", record=recording) as app:
        for tool in ("plain", "hollow"):
            async with app.open_view(tool):
                pass
    (said,) = [one.message for one in caplog.records if one.name == "transports.recording"]
    assert said == (
        "ui://views/hollow.html has texts that look like secrets; they are recorded as <redacted>, "
        "and its script may fail in a replay"
    )
    async with connect(f"replay:{file}", browser=browser, store=tmp_path / "store") as app:
        async with app.open_view("plain") as view:
            assert view.warnings == ()
        async with app.open_view("hollow") as view:
            (warning,) = view.warnings
            assert "<redacted> in place of some texts of the view" in warning


@pytest.mark.slow
async def test_blank_view_error_says_that_its_document_was_redacted(
    browser: Browser, tmp_path: Path, views_address: str
) -> None:
    file = tmp_path / "views.jsonl"
    recording = Recording(file, patterns=[r"cdn\.example(?P<secret>/\w+)"])
    async with connect(views_address, browser=browser, store=tmp_path / "store", record=recording) as app:
        with pytest.raises(
            NotAbpApp, match=r"stayed blank for [\d.]+ s: [^;]+\"; declare https://cdn.example in [^;]+$"
        ):
            async with app.open_view("forbidden", timeout=3):
                pass
    async with connect(f"replay:{file}", browser=browser, store=tmp_path / "store") as app:
        with pytest.raises(
            NotAbpApp, match=r"stayed blank.*; the recording has <redacted> in place of some texts of the view"
        ):
            async with app.open_view("forbidden", timeout=3):
                pass
