"""Apps, forms and calls in the gallery, with the reference app."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.e2e.visits import card, run, visiting
from tests.session.test_calls import ListedApp
from tests.support.gallery import PICTURE, Gallery, open_gallery
from tests.support.slow import slow_but
from transports import Browser
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_gallery_form_makes_calls_with_values_artifacts_and_local_files(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    work = await run(page, "chart.render")
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_label("csv")).to_be_focused()  # it is required
    await work.get_by_label("csv").fill("month,tea\nJanuary,3\nFebruary,5")
    await work.get_by_label("type").select_option(label="line")
    await work.get_by_label("width").fill("5000")
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_label("width")).to_be_focused()  # out of range
    await work.get_by_label("width").fill("320")
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
    await work.get_by_role("link", name="chart.png").click()
    await expect(page.get_by_role("dialog").get_by_text("320 × 450 pixels")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(work.get_by_role("link", name="chart.png")).to_be_focused()  # back where it was opened
    await page.get_by_role("link", name="Artifacts").click()
    await expect(card(page, "chart.png")).to_be_visible()

    there = await gallery.upload("there.png", "image/png", PICTURE)
    await expect(card(page, "there.png")).to_have_count(1)
    work = await run(page, "image.resize")
    await work.get_by_label(re.compile("^image")).first.select_option(there["id"])
    await work.get_by_label("width").fill("40")
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_text("✓ Succeeded").first).to_be_visible()
    work = await run(page, "file.digest")
    await work.get_by_label("Local file for file").set_input_files(
        {"name": "local.bin", "mimeType": "application/octet-stream", "buffer": b"abc"}
    )
    await expect(work.locator("select").first).to_contain_text("local.bin")
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
    await work.get_by_text("Answer as data").click()
    await work.locator(".answer").get_by_text("data", exact=True).first.click()
    await expect(work.locator(".answer")).to_contain_text(
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


@pytest.mark.slow
async def test_nested_params_are_fields_or_json_and_an_early_question_is_kept(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    work = await run(page, "export.pdf")
    await work.get_by_label("html").fill("<p>wide</p>")
    await work.get_by_role("group", name="options").get_by_label("landscape").select_option(label="Yes")
    await work.get_by_role("button", name="Edit as JSON").click()
    editor = work.get_by_label("Parameters JSON")
    assert json.loads(await editor.input_value()) == {"html": "<p>wide</p>", "options": {"landscape": True}}
    await editor.fill('{"html": ')
    await work.get_by_role("button", name="Run").click()
    await expect(work.locator(".panel")).to_have_count(0)
    await editor.fill('{"html": "<p>tall</p>"}')
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
    work = await run(page, "data.csv")  # an array of objects without properties: each item is JSON
    await work.get_by_label("rows 1").fill('{"a": 1}')
    await work.get_by_role("button", name="Add to rows").click()
    await work.get_by_label("rows 2").fill('{"a": 2}')
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
    newest = (await gallery.ask("GET", "artifacts?capability=data.csv&type=text/csv"))["artifacts"][0]
    async with gallery.http.get(gallery.url.rstrip("/") + newest["url"]) as answer:
        assert (await answer.text()).split() == ["a", "1", "2"]

    work = await run(page, "form.ask")

    async def late(route: Route) -> None:
        answer = await route.fetch()
        await expect(page.locator(".call[data-status=input_required]")).to_have_count(1)
        await route.fulfill(response=answer)

    await page.route("**/apps/*/calls", late)
    await work.get_by_label("method").fill("elicitation/confirm")
    await work.get_by_label(re.compile("^params")).fill('{"message": "Sure?"}')
    await work.get_by_role("button", name="Run").click()
    await work.get_by_role("button", name="No", exact=True).click()
    await expect(work.get_by_text("✓ Succeeded")).to_be_visible()


async def test_gallery_shows_progress_cancelling_and_errors(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    work = await run(page, "job.run")
    await work.get_by_label("steps").fill("1000")
    await work.get_by_label("delay").fill("100")
    await work.get_by_role("button", name="Run").click()
    await expect(work.get_by_role("progressbar")).to_have_attribute("value", re.compile(r"^0\.0\d+$"))
    await expect(page.locator("#running")).to_have_text("1")
    await work.get_by_role("button", name="Cancel").click()
    await expect(work.get_by_text("– Cancelled")).to_be_visible()
    await expect(page.locator("#running")).to_be_hidden()

    call = await gallery.start("image.resize", {"image": {"content": "AAAA", "encoding": "base64"}, "width": 1})
    await page.get_by_role("link", name="Calls").click()
    failed = page.locator(f"#call-{call}[data-status=failed]")
    await failed.locator("summary").click()
    await expect(failed.locator(".problem")).to_be_visible()


#: Parameters of a question, what is answered, and what the app gets.
QUESTIONS: dict[str, tuple[dict[str, object], str, object]] = {
    "elicitation/input": ({"message": "Name?", "schema": {"type": "integer"}}, "42", {"value": 42}),
    "elicitation/select": ({"message": "Which?", "options": ["red", "green"]}, "green", {"selected": "green"}),
    "elicitation/confirm": ({"message": "Sure?", "schema": {"destructive": True}}, "", {"confirmed": True}),
    "sampling/create": ({"task": "Summarize this", "context": "A long text"}, "short", {"result": "short"}),
}


@pytest.mark.parametrize("method", slow_but(QUESTIONS, "elicitation/input", "elicitation/confirm"))
async def test_gallery_asks_questions_of_app(shared: tuple[Gallery, Page], method: str) -> None:
    gallery, page = shared
    params, text, expected = QUESTIONS[method]
    work = await run(page, "form.ask")
    await work.get_by_label("method").fill(method)
    await work.get_by_label(re.compile("^params")).fill(json.dumps(params))
    await work.get_by_role("button", name="Run").click()
    form = work.get_by_role("form", name="The app asks")
    for key in {"message", "task", "context"} & params.keys():
        await expect(form).to_contain_text(str(params[key]))
    if method == "elicitation/confirm":
        await expect(form).to_contain_text("may delete or overwrite")
        await form.get_by_role("button", name="Yes").click()
    else:
        answer = form.get_by_label("Answer")
        await (answer.select_option(label=text) if method == "elicitation/select" else answer.fill(text))
        await form.get_by_role("button", name="Answer").click()
    await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
    call = (await gallery.ask("GET", "calls"))["calls"][0]["id"]
    assert (await gallery.ask("GET", f"calls/{call}"))["result"]["data"]["response"]["data"] == expected


@pytest.mark.slow
async def test_gallery_timeline_shows_run_at_a_glance(gallery: Gallery, browser: Browser) -> None:
    async with visiting(gallery, browser) as page:
        await page.get_by_role("link", name="Calls").click()
        await expect(page.get_by_role("heading", name="No calls yet")).to_be_visible()
        waiting = await gallery.start("job.wait", {})
        row = page.locator(f"#call-{waiting}")
        await expect(row).to_have_attribute("data-status", "working")
        before = await row.locator(".took").text_content()
        await expect(row.locator(".took")).not_to_have_text(str(before))  # it grows
        chart = await gallery.call("chart.render", csv="a,b\n1,2")
        done = page.locator(f"#call-{chart['id']}")
        await expect(done).to_have_attribute("data-status", "completed")
        await expect(done.locator(".outcome")).to_have_text("1 file")
        await expect(done).to_contain_text("playwright")
        bars = [await locator.bounding_box() for locator in (row.locator(".bar"), done.locator(".bar"))]
        assert bars[0] and bars[1] and bars[0]["x"] < bars[1]["x"] and bars[0]["width"] > bars[1]["width"]
        assert await page.locator(".run").count() == 1
        named = page.locator("#view-calls").get_by_text("job.wait", exact=True)
        await expect(named).to_have_count(1)  # once, as any call
        await expect(row).to_contain_text("detached")
        await row.locator("summary").first.click()
        await row.get_by_role("button", name="Cancel").click()
        await expect(row).to_have_attribute("data-status", "cancelled")
        await row.locator("summary").first.click()
        await expect(page.locator(".run h2")).to_contain_text("2 calls")
        await done.locator("summary").click()
        await expect(done.get_by_role("link", name="chart.png")).to_be_visible()


@pytest.mark.slow
async def test_apps_are_connected_and_disconnected(tmp_path: Path, browser: Browser, fixture: Fixture) -> None:
    config = tmp_path / "team.toml"
    config.write_text(f'[apps.bench]\nurl = "{fixture.ws_url}"\n')
    async with (
        open_gallery(tmp_path / "store", browser, replace(fixture, url=fixture.ws_url), config=config) as gallery,
        visiting(gallery, browser) as page,
    ):
        await page.get_by_role("link", name="Apps").click()
        await expect(page.locator(".app")).to_have_count(1)
        await page.get_by_label("Address of an app").fill(fixture.ws_url)
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.locator(".app")).to_have_count(2)
        await expect(page.locator(".app").nth(1)).to_contain_text("websocket")
        await page.get_by_label("Search capabilities").fill("tone")
        await expect(page.locator(".capability:visible").first).to_contain_text("audio.tone")
        await page.get_by_label("Search capabilities").fill("")
        await page.locator(".app").nth(1).get_by_role("button", name="Disconnect").click()
        await page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        await expect(page.locator(".app")).to_have_count(1)
        await page.get_by_label("Address of an app").fill("http://127.0.0.1:9/")
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.locator(".notice")).to_be_visible()
        await gallery.call("app.toggle", capability="extra.hello")
        await expect(page.locator(".capability", has_text="extra.hello")).to_be_visible()
        await gallery.call("app.toggle", capability="extra.hello")

        await expect(page.locator("#app-names option")).to_have_attribute("value", "bench")
        await page.get_by_label("Address of an app").fill("bench")
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.locator(".app .url").nth(1)).to_have_text(re.compile(r"^bench · session "))
        await gallery.ask("POST", "apps", body={"url": "bench", "user": "ann"}, expect=201)
        await expect(page.locator(".app .url").nth(2)).to_contain_text("bench · signed in as ann · session")


# --- input schemas that the reference app has not ---------------------------------------------------------------------


NODE = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"size": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, "node": NODE},
    "required": ["title", "kind", "flag", "point", "size"],
    "properties": {
        "title": {"type": "string", "minLength": 2, "pattern": "^[A-Z]", "default": "Ada"},
        "kind": {"const": "report"},
        "flag": {"type": "boolean"},
        "maybe": {"type": "boolean"},
        "number": {"enum": [1, 2.5, None, "text"]},
        "size": {"$ref": "#/$defs/size"},
        "optional": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
        "either": {"oneOf": [{"type": "string"}, {"type": "object"}]},
        "day": {"type": ["string", "null"], "format": "date"},
        "point": {
            "type": "object",
            "required": ["x"],
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
        },
        "list": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 7}},
            },
        },
        # left out as a whole, so that nothing in it is required
        "circle": {"type": "object", "required": ["r"], "properties": {"r": {"type": "number"}}},
        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "a.dot": {"type": "string"},
        "tree": {"$ref": "#/$defs/node"},
    },
}


@pytest.mark.slow
async def test_call_form_supports_every_field_type(tmp_path: Path, browser: Browser) -> None:
    came: list[Mapping[str, Any]] = []

    async def handle(params: Mapping[str, object], _: object) -> object:
        came.append(params)
        return {"ok": True}

    answers: dict[str, Mapping[str, object]] = {
        "all": {"inputSchema": SCHEMA, "experimental": True},
        "open": {"inputSchema": {"type": "object"}, "deprecated": True, "deprecationMessage": "use all"},
        "none": {},
    }
    app = ListedApp(dict.fromkeys(answers, handle), **answers)
    async with (
        open_gallery(tmp_path, browser, memory=app) as gallery,
        visiting(gallery, browser) as page,
    ):
        file = await gallery.upload("one.bin", "application/octet-stream", b"one")
        work = await run(page, "all")
        await expect(work.get_by_text("experimental It may change.")).to_be_visible()

        def label(name: str) -> Locator:
            return work.get_by_label(re.compile(rf"^{name}\b")).first

        async def refused(field: Locator) -> None:
            await work.get_by_role("button", name="Run").click()
            await expect(field).to_be_focused()
            assert not await field.evaluate("node => node.validity.valid")

        await expect(label("title")).to_have_value("Ada")
        await label("title").fill("ada")
        await label("size").fill("3")
        await label("x").fill("1.5")
        await refused(label("title"))
        await label("title").fill("Eve")
        await label("size").fill("10")
        await refused(label("size"))
        await label("size").fill("9")
        await label("x").fill("")
        await refused(label("x"))
        await label("x").fill("-1.5")
        await label("either").fill("[1")
        await refused(label("either"))
        await label("either").fill('{"free": true}')
        await label("number").select_option(label="2.5")
        await label("maybe").select_option(label="No")
        await label("day").fill("2026-02-28")
        add = work.get_by_role("button", name="Add to list")
        await add.click()
        await label("a").fill("first")
        await add.click()
        await expect(add).to_be_hidden()  # two at most
        await work.get_by_role("button", name="Remove the last of list").click()
        await work.get_by_role("button", name="Add to files").click()
        await work.get_by_label(re.compile("^files 1")).first.select_option(file["id"])
        await work.get_by_label("a.dot").fill("dotted")
        await work.get_by_role("group", name="tree").first.get_by_label("name").first.fill("root")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        params = dict(came[0])
        (content,) = params.pop("files")
        assert "one.bin" in str(content)
        assert params == {
            "title": "Eve",
            "kind": "report",
            "flag": False,
            "maybe": False,
            "number": 2.5,
            "size": 9,
            "either": {"free": True},
            "day": "2026-02-28",
            "point": {"x": -1.5},
            "list": [{"a": "first", "b": 7}],
            "a.dot": "dotted",
            "tree": {"name": "root"},
        }

        work = await run(page, "open")
        await expect(work.get_by_text("deprecated use all")).to_be_visible()
        await work.locator("textarea:visible").fill(json.dumps({"any": ["thing"]}))
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        work = await run(page, "none")
        await work.get_by_role("button", name="Run").click()
        await expect(work.get_by_text("✓ Succeeded")).to_be_visible()
        assert came[1:] == [{"any": ["thing"]}, {}]
