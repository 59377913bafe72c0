"""Forms of input schemas that the reference app has not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.visits import run, visiting
from tests.session.test_calls import ListedApp
from tests.support.gallery import open_gallery
from transports import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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
