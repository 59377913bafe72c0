"""Every bound of the room: a case at it, and one beyond it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.rows import each_row
from transports.artifacts import ArtifactRef, NoneStore
from transports.errors import UsageError
from transports.protocol._find_content import find
from transports.protocol._strict_json import JSONValue
from transports.protocol.messages import Effect
from transports.routing import (
    AgentLimits,
    FieldRule,
    ResourcePolicy,
    Result,
    Router,
    RoutingPolicy,
    clamp,
)
from transports.routing._guard import cut_texts, json_size
from transports.routing._layers import fill_summary, human_size, match_fields
from transports.routing._policy import check_path
from transports.routing._result import long_texts, shorten


def ref(number: int = 0, size: int = 1) -> ArtifactRef:
    return ArtifactRef(f"i{number}", f"artifact://i{number}", f"/i{number}", "f", "a/b", size, "0" * 64)


def first_line(answer: str) -> str:
    return Result("x", answer, {"": ref(size=len(answer) + 2)}).summary(max_chars=100_000).splitlines()[0]


def words(text: str) -> list[str]:
    """Return the text if it is a word to a rule, not a file."""
    assert find({"a": text}) == []
    return [] if match_fields({"a": text}, [FieldRule("a", mime_type="application/x-own")]) else [text]


def agent(data: JSONValue, **limits: object) -> JSONValue:
    return Result("x", data, {}, limits=AgentLimits(**limits)).for_agent()["data"]  # type: ignore[arg-type]


def effect(text: str) -> str:
    effects = (Effect("dialog", None, {"m": text}),)
    return Result("x", 1, {"": ref()}, effects=effects).summary().splitlines()[-1]


def value(text: JSONValue) -> str:
    return fill_summary("{name}", ref(), {"name": text})


ROOM = 50_000 - len('{"data":""}')


@each_row(
    ("shorter", "content", "expected"),
    [
        (partial(clamp, max_bytes=64), "x" * 100, "x" * 35 + "\n... [truncated: 65 chars]"),
        (partial(agent, max_field_chars=None), "x" * ROOM, "x" * ROOM),
        (agent, ["x" * 10_000] * 4, ["x" * 10_000] * 4),
        (agent, ["x" * 10_001], ["x" * 9_971 + "\n... [truncated: 30 chars]"]),
        (effect, "x" * 78, f"Effect: dialog (m {'x' * 78})"),
        (effect, "x" * 79, f"Effect: dialog (m {'x' * 77}…)"),
        *((function, "x" * 200, "x" * 200) for function in (shorten, value)),
        *((shorten, "x" * 201, "x" * 200 + "…"), (value, "x" * 201, "x" * 199 + "…")),
        (partial(shorten, stored=False), "x" * 500, "x" * 500),
        (partial(shorten, stored=False), "x" * 501, "x" * 500 + "…"),
        (value, " " * 799 + "y", "y"),
        (value, " " * 800 + "y", ""),
        (value, True, "unknown name"),
        (human_size, 1023, "1023 bytes"),
        (human_size, 1024, "1.0 KB"),
        (human_size, 1024**2 - 1, "1024.0 KB"),
        (human_size, 1024**2, "1.0 MB"),
        (human_size, 1024**3, "1.0 GB"),
        (human_size, 5 * 1024**4, "5120.0 GB"),
        (words, "q" * 99, ["q" * 99]),
        (words, "q" * 100, []),
        (first_line, "x" * 3998, '"' + "x" * 3998 + '"'),
        (first_line, "x" * 3999, "Output saved to file: /i0"),
    ],
)
def test_content_is_shortened_to_limit(shorter: Callable[[object], object], content: object, expected: object) -> None:
    assert shorter(content) == expected


@pytest.mark.requirement("R2-6.1b")
@each_row(
    ("make", "allowed", "refused", "message"),
    [
        (partial(clamp, "x"), 64, 63, r"at least 64 \(it is 63\)"),
        (lambda limit: Result("x", "x", {}).for_agent(max_bytes=limit), 1024, 1023, r"at least 1024 \(it is 1023\)"),
        (lambda limit: AgentLimits(max_bytes=limit), 1024, 1023, r"at least 1024 \(it is 1023\)"),
        (lambda limit: AgentLimits(max_field_chars=limit), 1, 0, "max_field_chars must be at least 1 "),
        (lambda size: AgentLimits(truncation_suffix="x" * size), 200, 201, "at most 200 characters"),
        (FieldRule, "a", "", "needs a path"),
        *(
            (lambda limit, name=name: ResourcePolicy(**{name: limit}), 0, -1, rf"{name} .*\(it is -1\)")
            for name in ("auto_read_if_size_under_bytes", "inline_text_if_under_chars")
        ),
        *(
            (lambda limit, name=name: RoutingPolicy(**{name: limit}), 0, -1, rf"{name} .*\(it is -1\)")
            for name in ("min_guessed_chars", "max_decode_bytes", "max_inline_chars", "max_inline_bytes", "max_texts")
        ),
        (check_path, "$.a", "pages..image", "is not a path of a field"),
        (check_path, "\\$ref", "$ref", "a key that begins with [$] is written"),
        (check_path, "a.b", "pages.", "is not a path of a field"),
        (check_path, "$.pages", "$.pages[", "is not a JSONPath .RFC 9535.: .*brackets"),
    ],
)
def test_out_of_range_limit_raises_usage_error(
    make: Callable[[Any], object], allowed: object, refused: object, message: str
) -> None:
    make(allowed)
    with pytest.raises(UsageError, match=message):
        make(refused)


@pytest.mark.parametrize(("count", "more"), [(20, "'p19'"), (21, "'p19' and 1 more")])
def test_missing_artifact_error_lists_at_most_20_places(count: int, more: str) -> None:
    result = Result("x", None, {f"p{n}": ref(n) for n in range(count)})
    with pytest.raises(UsageError, match="no artifact at 'p'; ") as caught:
        result.artifact("p")
    assert caught.value.message.endswith(more) and caught.value.details["places"] == [*result.artifacts]


# --- decisions that other tests only pass by --------------------------------------------------------------------------


def test_summary_template_fills_all_fields() -> None:
    template = "{filename} {artifact_id} {mime_type} {content_type} {size} {size_human} {other} {none}"
    own = ArtifactRef("i", "artifact://i", None, "f.pdf", "application/pdf", 2048, "0" * 64)
    assert fill_summary(template, own, {"other": 1.5}) == "f.pdf i application/pdf pdf 2048 2.0 KB 1.5 unknown none"
    plain = ArtifactRef("i", "artifact://i", None, "f", "application/octet-stream", 1, "0" * 64)
    assert fill_summary("{content_type}", plain, {}) == "binary"


def test_texts_within_limit_are_returned_unchanged() -> None:
    values: list[JSONValue] = ["xx", ["xx", {"a": "xx"}], {"a": ["xx"], "b": 5}]
    for value in values:
        assert cut_texts(value, 2, "…") is value
    assert cut_texts(["xx", "xxxx"], 3, "…{truncated_chars}") == ["xx", "x…3"]
    assert cut_texts({"a": ["xxx"], "b": "y"}, 2, "…") == {"a": ["x…"], "b": "y"}
    assert cut_texts(["xxx", [7, None]], 2, "<{truncated_chars} more>") == ["x…", [7, None]]
    assert cut_texts("xx", 1) == "…" and cut_texts("x", 1) == "x"


def test_long_texts_are_found_with_their_types() -> None:
    text = "x" * 21
    tree = {"a": "x" * 20, "b": [text, "x" * 20, [text]], "c": {"mimeType": "text/markdown", "d": text}}
    assert [(place, kind) for place, _, kind in long_texts(tree, 20)] == [
        (("b", 0), "text/plain"),
        (("b", 2, 0), "text/plain"),
        (("c", "d"), "text/markdown"),
    ]
    for declared, start, kind in (
        ("image/png", "", "text/plain"),
        (None, "<html>", "text/html"),
        ("image/png", "<svg ", "image/svg+xml"),
        ("nonsense", "%PDF-", "text/plain"),
        (None, "<html>\ud800", "text/html"),
    ):
        assert long_texts({"a": start + text, "mimeType": declared}, 20)[0][2] == kind


@pytest.mark.requirement("R2-5.4a", "R2-5.4c")
def test_result_document_has_documented_fields() -> None:
    result = Result("x", {"a": 1}, {"": ref()}, "memory", 1.26, ("w",))
    assert result.as_dict() == {
        "success": True,
        "capability": "x",
        "transport": "memory",
        "data": {"a": 1},
        "duration_ms": 1.3,
        "warnings": ["w"],
        "artifacts": [{"field": "", **ref().as_dict()}],
    }


@each_row("size", [*range(1024, 1060), 5000])
def test_cut_answer_fills_limit_and_never_exceeds_it(size: int) -> None:
    assert size - 1 <= json_size(Result("x", "x" * 6000, {}).for_agent(max_bytes=size)) <= size
    assert size - 1 <= json_size(clamp("x" * 6000, size)) <= size
    by_default = Result("x", "x" * (ROOM + 1), {}, limits=AgentLimits(max_field_chars=None)).for_agent()
    assert "truncated" in by_default and 49_000 < json_size(by_default) <= 50_000


async def test_router_validates_answer_schema_and_measures_duration() -> None:
    with pytest.raises(UsageError, match=r"store must be .* not int"):
        Router(5)  # type: ignore[arg-type]
    schema = {"properties": {"n": {"type": "string"}}}
    routed = await Router(NoneStore()).route({"n": 1}, capability="x", schema=schema, started=time.perf_counter() - 1)
    assert (
        routed.warnings == ('outputSchema: data.n: 1 is not of type "string"',) and 1000 <= routed.duration_ms < 600_000
    )
    assert (await Router(NoneStore()).route({"n": "1"}, capability="x", schema=schema)).warnings == ()
