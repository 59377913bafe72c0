"""Every bound of the room: a case at it, and one beyond it."""

from __future__ import annotations

import time

import pytest

from transports.artifacts import ArtifactRef, NoneStore
from transports.errors import UsageError
from transports.protocol._find_content import find
from transports.protocol._strict_json import JSONValue
from transports.protocol.messages import Effect
from transports.routing import (
    GITHUB,
    TABLEAU,
    AgentLimits,
    FieldRule,
    ResourcePolicy,
    Result,
    Router,
    RoutingConfig,
    RoutingPolicy,
    clamp,
)
from transports.routing._guard import cut_texts, json_size
from transports.routing._layers import fill_summary, human_size, match_fields
from transports.routing._policy import check_path
from transports.routing._result import long_texts, shorten


def ref(number: int = 0, size: int = 1) -> ArtifactRef:
    return ArtifactRef(f"i{number}", f"artifact://i{number}", f"/i{number}", "f", "a/b", size, "0" * 64)


def test_the_guard_has_64_bytes_at_least() -> None:
    assert clamp("x" * 100, 64) == "x" * 35 + "\n... [truncated: 65 chars]"
    with pytest.raises(UsageError, match=r"at least 64 \(it is 63\)"):
        clamp("x", 63)


def test_an_agent_reads_50000_bytes_unless_told_others() -> None:
    room = 50_000 - len('{"data":""}')
    many = AgentLimits(max_field_chars=None)
    assert "truncated" not in Result("x", "x" * room, {}, limits=many).for_agent()
    cut = Result("x", "x" * (room + 1), {}, limits=many).for_agent()
    assert "truncated" in cut and 49_000 < json_size(cut) <= 50_000


def test_an_agent_reads_10000_characters_of_each_text_unless_told_others() -> None:
    assert Result("x", ["x" * 10_000] * 4, {}).for_agent() == {"data": ["x" * 10_000] * 4}
    cut = Result("x", ["x" * 10_001], {}).for_agent()
    assert cut["data"] == ["x" * 9_971 + "\n... [truncated: 30 chars]"]


def test_an_agent_reads_1024_bytes_at_least() -> None:
    assert json_size(Result("x", "x" * 5000, {}).for_agent(max_bytes=1024)) <= 1024
    assert AgentLimits(max_bytes=1024).max_bytes == 1024
    for make in (lambda: Result("x", "x", {}).for_agent(max_bytes=1023), lambda: AgentLimits(max_bytes=1023)):
        with pytest.raises(UsageError, match=r"at least 1024 \(it is 1023\)"):
            make()


def test_policies_refuse_what_makes_no_sense() -> None:
    assert AgentLimits(max_field_chars=1, truncation_suffix="x" * 200)
    with pytest.raises(UsageError, match="at least 1 "):
        AgentLimits(max_field_chars=0)
    with pytest.raises(UsageError, match="at most 200 characters"):
        AgentLimits(truncation_suffix="x" * 201)
    assert ResourcePolicy(auto_read_if_size_under_bytes=0, inline_text_if_under_chars=0)
    assert RoutingPolicy(max_texts=0, max_inline_chars=0, min_guessed_chars=0)
    for name in ("auto_read_if_size_under_bytes", "inline_text_if_under_chars"):
        with pytest.raises(UsageError, match=rf"{name} must not be negative \(it is -1\)"):
            ResourcePolicy(**{name: -1})  # type: ignore[arg-type]
    for name in ("min_guessed_chars", "max_decode_bytes", "max_inline_chars", "max_inline_bytes", "max_texts"):
        with pytest.raises(UsageError, match=rf"{name} must not be negative \(it is -1\)"):
            RoutingPolicy(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "more"), [(20, "'p19'"), (21, "'p19' and 1 more")])
def test_20_places_are_named(count: int, more: str) -> None:
    result = Result("x", None, {f"p{n}": ref(n) for n in range(count)})
    with pytest.raises(UsageError) as caught:
        result.artifact("p")
    assert caught.value.message.endswith(more) and caught.value.details["places"] == [*result.artifacts]


@pytest.mark.parametrize(("chars", "shown"), [(3998, True), (3999, False)])
def test_an_answer_of_4000_characters_stands_in_the_summary(chars: int, shown: bool) -> None:
    result = Result("x", "x" * chars, {"": ref(size=chars + 2)})
    assert result.summary(max_chars=100_000).startswith('"xxx') is shown


def test_an_effect_takes_80_characters() -> None:
    def line(text: str) -> str:
        return Result("x", 1, {"": ref()}, effects=(Effect("dialog", None, {"m": text}),)).summary().splitlines()[-1]

    assert line("x" * 78) == f"Effect: dialog (m {'x' * 78})"
    assert line("x" * 79) == f"Effect: dialog (m {'x' * 77}…)"


def test_a_preview_has_200_characters_or_500_of_what_is_stored_nowhere() -> None:
    assert shorten("x" * 200) == "x" * 200
    assert shorten("x" * 201) == "x" * 200 + "…"
    assert shorten("x" * 500, stored=False) == "x" * 500
    assert shorten("x" * 501, stored=False) == "x" * 500 + "…"


@pytest.mark.parametrize(("chars", "found"), [(99, 0), (100, 1)])
def test_base64_of_100_characters_is_no_word(chars: int, found: int) -> None:
    rule = FieldRule("a", mime_type="application/x-own")
    assert len(match_fields({"a": "q" * chars}, [rule])) == found
    assert find({"a": "q" * chars}) == []


def test_a_value_in_a_summary_has_200_characters() -> None:
    def filled(value: JSONValue) -> str:
        return fill_summary("{name}", ref(), {"name": value})

    assert filled("x" * 200) == "x" * 200
    assert filled("x" * 201) == "x" * 199 + "…"
    assert filled(" " * 799 + "y") == "y"
    assert filled(" " * 800 + "y") == ""
    assert filled(True) == "unknown name"


def test_a_size_for_people_changes_its_unit_at_1024() -> None:
    sizes = (1023, 1024, 1024**2 - 1, 1024**2, 1024**3, 5 * 1024**4)
    assert [human_size(size) for size in sizes] == [
        "1023 bytes",
        "1.0 KB",
        "1024.0 KB",
        "1.0 MB",
        "1.0 GB",
        "5120.0 GB",
    ]


# --- decisions that other tests only pass by --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["$[0:0]", "$[1:1]", "$[2:1]", "$[-1:-1]", "$[-1:-2]", "$[:0]", "$[0:5:0]", "$[1:2:-1]"]
)
def test_a_slice_that_selects_nothing_of_any_list_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="can match nothing"):
        check_path(path)


@pytest.mark.parametrize("path", ["$[0:1]", "$[-2:-1]", "$[0:-1]", "$[-1:1]", "$[2:1:-1]", "$[:]", "$[1:]", "$[:0:-1]"])
def test_a_slice_that_selects_something_of_some_list_is_taken(path: str) -> None:
    check_path(path)


def test_a_path_has_64_steps_at_most() -> None:
    check_path(".".join("a" * 64))
    check_path("$" + ".a" * 64)
    for path in (".".join("a" * 65), "$" + ".a" * 65):
        with pytest.raises(UsageError, match="64 levels at most"):
            check_path(path)


def test_all_that_a_summary_can_name() -> None:
    template = "{filename} {artifact_id} {mime_type} {content_type} {size} {size_human} {other} {none}"
    own = ArtifactRef("i", "artifact://i", None, "f.pdf", "application/pdf", 2048, "0" * 64)
    assert fill_summary(template, own, {"other": 1.5}) == "f.pdf i application/pdf pdf 2048 2.0 KB 1.5 unknown none"
    plain = ArtifactRef("i", "artifact://i", None, "f", "application/octet-stream", 1, "0" * 64)
    assert fill_summary("{content_type}", plain, {}) == "binary"


def test_texts_that_fit_are_the_same_object() -> None:
    values: list[JSONValue] = ["xx", ["xx", {"a": "xx"}], {"a": ["xx"], "b": 5}]
    for value in values:
        assert cut_texts(value, 2, "…") is value
    assert cut_texts(["xx", "xxxx"], 3, "…{truncated_chars}") == ["xx", "x…3"]
    assert cut_texts({"a": ["xxx"], "b": "y"}, 2, "…") == {"a": ["x…"], "b": "y"}
    assert cut_texts(["xxx", [7, None]], 2, "<{truncated_chars} more>") == ["x…", [7, None]]
    assert cut_texts("xx", 1) == "…" and cut_texts("x", 1) == "x"


def test_long_texts_and_their_types() -> None:
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
    ):
        assert long_texts({"a": start + text, "mimeType": declared}, 20)[0][2] == kind


def test_the_document_of_a_result() -> None:
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


def test_a_preset_for_all_servers() -> None:
    config = RoutingConfig.parse({"preset": "github", "servers": {"other": {"preset": "tableau"}}}, "abp.toml: routing")
    assert config.policy("x", presets=False).tool_fields == GITHUB.tool_fields
    assert config.policy("other", presets=False).tool_fields == TABLEAU.tool_fields


@pytest.mark.parametrize("size", [*range(1024, 1060), 5000])
def test_a_cut_answer_takes_its_room_and_no_more(size: int) -> None:
    assert size - 1 <= json_size(Result("x", "x" * 6000, {}).for_agent(max_bytes=size)) <= size
    assert size - 1 <= json_size(clamp("x" * 6000, size)) <= size


async def test_a_router_compares_an_answer_with_its_schema_and_takes_the_time() -> None:
    with pytest.raises(UsageError, match=r"store must be .* not int"):
        Router(5)  # type: ignore[arg-type]
    schema = {"properties": {"n": {"type": "string"}}}
    routed = await Router(NoneStore()).route({"n": 1}, capability="x", schema=schema, started=time.perf_counter() - 1)
    assert (
        routed.warnings == ('outputSchema: data.n: 1 is not of type "string"',) and 1000 <= routed.duration_ms < 600_000
    )
    assert (await Router(NoneStore()).route({"n": "1"}, capability="x", schema=schema)).warnings == ()


async def test_an_answer_of_more_than_the_inline_bytes_is_stored_as_json() -> None:
    policy = RoutingPolicy(max_inline_bytes=len('{"a":"xxx"}'))
    for text, large in (("xxx", False), ("xxxx", True)):
        routed = await Router(NoneStore(), policy=policy).route({"a": text}, capability="x")
        assert any(step.layer == "size" for step in routed.steps) is large
