"""Answers of very many small values: stored as JSON, with their beginning, their shape and a link."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.relayed import relayed
from transports.protocol import MAX_VALUES
from transports.surfaces.mcp.proxy import _lines, _outlines, _rewriting

#: Rows of the limits as they are, of which one test has enough, and of limits that are a thirtieth of them.
MANY, ROWS_COUNT = 300_000, 10_000


def rows_of(count: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"row {number}"} for number in range(count)]


ROWS = rows_of(ROWS_COUNT)


@pytest.fixture
def thirtieth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that ten thousand rows exceed as three hundred thousand exceed those of every day."""
    monkeypatch.setattr(_lines, "MAX_VALUES", MAX_VALUES // 30)
    monkeypatch.setattr(_rewriting, "_MAX_PARSED", _rewriting._MAX_PARSED // 30)


def links(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in result["content"] if block["type"] == "resource_link"]


async def whole(client: Any, uri: str, size: int) -> object:
    """Stored JSON, read in ranges."""
    parts = [await client.content(f"{uri}?offset={at}&length=8000000") for at in range(0, size, 8_000_000)]
    return json.loads(b"".join(parts))


@pytest.mark.load
async def test_structured_content_of_very_many_values_is_stored_and_cut(tmp_path: Path) -> None:
    """With the limits as they are."""
    async with relayed(tmp_path) as client:
        given = {"content": [{"type": "text", "text": "many"}], "structuredContent": {"rows": f"@rows:{MANY}", "n": 7}}
        result = await client.give(given)
        assert len(json.dumps(result)) < 5000 and result["content"][0] == {"type": "text", "text": "many"}
        shown = result["structuredContent"]
        assert shown["n"] == 7 and shown["rows"][0] == ROWS[0]
        assert shown["rows"][-1] == f"… {MANY - len(shown['rows']) + 1:,} more items"
        (link,) = links(result)
        assert link["mimeType"] == "application/json"
        assert await whole(client, link["uri"], link["size"]) == {"rows": rows_of(MANY), "n": 7}


@pytest.mark.usefixtures("thirtieth")
async def test_a_schema_holds_for_very_many_values(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        given = {"content": [], "structuredContent": {"data": "x", "rows": f"@rows:{ROWS_COUNT}"}}
        loose = await client.give(given, "loose")
        assert loose["structuredContent"]["rows"][0] == ROWS[0]
        assert all(isinstance(row, dict) for row in loose["structuredContent"]["rows"])
        assert len(links(loose)) == 1
        strict = await client.give(
            given | {"structuredContent": {"data": "y" * 1000, "rows": f"@rows:{ROWS_COUNT}"}}, "strict"
        )
        assert strict["structuredContent"]["rows"] == ROWS
        (warning,) = strict["_meta"]["abp-transports/warnings"]
        assert "outputSchema" in warning and links(strict) == []


@pytest.mark.usefixtures("thirtieth")
async def test_very_many_blocks_are_one_text_and_a_link(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        text, link = (await client.give({"content": f"@rows:{ROWS_COUNT}"}))["content"]
        assert text["type"] == "text" and "a list of 10,000 items, each with id, name" in text["text"]
        assert await whole(client, link["uri"], link["size"]) == ROWS


@pytest.mark.usefixtures("thirtieth")
async def test_a_json_text_over_the_limit_shows_its_shape(tmp_path: Path) -> None:
    text = json.dumps(ROWS + ROWS)
    assert len(text) > _rewriting._MAX_PARSED
    async with relayed(tmp_path) as client:
        shown, link = (await client.give({"content": [{"type": "text", "text": text}]}))["content"]
        assert "a list of 20,000 items, each with id, name" in shown["text"]
        assert link["mimeType"] == "application/json" and link["size"] == len(text)


@pytest.mark.usefixtures("thirtieth")
async def test_a_call_of_very_many_values_has_its_answer_rewritten(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        result = await client.call("give", result={"content": ROWS[:1]}, more=[0] * 100_000)
        assert result["content"] == ROWS[:1]
        image = {"type": "image", "data": "@base64:90000", "mimeType": "image/png"}
        result = await client.call("give", result={"content": [image]}, more=[0] * 100_000)
        assert len(links(result)) == 1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that short messages exceed."""
    for module, name, value in (
        (_lines, "MAX_VALUES", 200),
        (_lines, "LONG", 400),
        (_lines, "MAX_SHORT", 5000),
        (_outlines, "_CARVED", 300),
        (_outlines, "_ITEMS", 5),
        (_outlines, "_FIRST_WINDOW", 16),
        (_outlines, "_WINDOW", 256),
    ):
        monkeypatch.setattr(module, name, value)


def value_of(chance: random.Random, depth: int) -> object:
    def text() -> str:
        return "".join(chance.choices('ab"\\\n[]{},é😀:', k=chance.choice([0, 1, 3, 10, 50, 390, 410, 1200])))

    kind = chance.random()
    if depth == 0 or kind < 0.4:
        return chance.choice([1, 2.5, None, True, text(), -7, ""])
    if kind < 0.7:
        return [value_of(chance, depth - 1) for _ in range(chance.choice([0, 1, 4, 5, 6, 7, 20]))]
    return {f"{text()[:20]}{at}": value_of(chance, depth - 1) for at in range(chance.choice([0, 1, 3, 9]))}


def chunks_of(chance: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = chance.choice([1, 7, 100, 1000, 5000])
        yield data[at : at + size]
        at += size


def same_beginning(value: object, outline: Any) -> None:
    """An outline has the true number of items and fields, and the first of them."""
    if isinstance(value, list):
        assert _outlines.count(outline) == len(value)
        for item, shown in zip(value[:5], outline[: min(5, len(value))], strict=True):
            same_beginning(item, shown)
    elif isinstance(value, dict):
        listed, total = _outlines.names(outline)
        assert total == len(value) and listed == list(value)
        for key in listed:
            same_beginning(value[key], outline[key])
    elif not (isinstance(value, str) and len(value) > 50):  # a long text is a mark
        assert outline == value


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(20))
def test_a_message_without_its_long_values_is_whole_again(seed: int) -> None:
    chance = random.Random(seed)
    structured = {"a": value_of(chance, 4), "b": [value_of(chance, 1) for _ in range(300)]}
    inner = {"structuredContent": {"x": value_of(chance, 4)}}
    message = {
        "id": seed,
        "result": {"content": [value_of(chance, 2)], "structuredContent": structured, "result": inner},
    }
    separators = chance.choice([(",", ":"), (", ", ": ")])
    data = json.dumps(message, ensure_ascii=chance.random() < 0.5, separators=separators).encode()
    reader = _lines.LineReader()
    (line,) = [line for chunk in chunks_of(chance, data + b"\n") for line in reader.feed(chunk)]
    try:
        assert b"".join(line.pieces()) == data
        assert b"".join(line.whole(line.short)) == data and line.length(line.short) == len(data)
        values = [run for run in line.runs.values() if run.is_value]
        assert values
        for run in values:
            assert run.outline is not None
            same_beginning(json.loads(b"".join(line.read(run))), json.loads(run.outline))
    finally:
        line.close()
