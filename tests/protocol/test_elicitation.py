"""Answers to an app's questions without a session: what fits, and what an answer that does not fit is told."""

from __future__ import annotations

import pytest

from tests.support.rows import each_row
from transports.protocol._elicitation import (
    DECLINED,
    INVALID_ANSWER,
    answer_fault,
    default_answer,
    options_of,
    refused_answer,
)
from transports.protocol._payloads import ElicitationRequest

_SAYS_NOTHING = "it does not say whether it is a success"
PIN = {"properties": {"pin": {"maxLength": 2}}}


def fault(method: str, answer: object, **params: object) -> str:
    return answer_fault(ElicitationRequest(method=f"elicitation/{method}", params=params), answer)


def form(inner: str) -> str:
    return f'{{"success": True, "data": {{{inner}}}}}'


@pytest.mark.requirement("R6-6a")
@each_row(
    ("method", "example"),
    [
        ("elicitation/input", form('"value": "Ada"')),
        ("elicitation/preference", form('"value": "Ada"')),
        ("elicitation/select", form('"selected": "red"')),
        ("elicitation/confirm", form('"confirmed": True')),
        ("elicitation/resource", form('"content": "…"')),
        ("sampling/create", form('"result": "…"')),
        ("its/own", form("…")),
    ],
)
def test_invalid_elicitation_answer_error_shows_expected_form(method: str, example: str) -> None:
    request = ElicitationRequest(method=method)
    assert answer_fault(request, 5) == f"it is of the type int, not {example}"
    assert answer_fault(request, {}) == f"it does not say whether it is a success; return {example}"
    assert answer_fault(request, {"success": 1}) == f"it does not say whether it is a success; return {example}"
    key = example.partition("data")[2].partition(":")[2].partition('"')[2].partition('"')[0]
    if not key:
        assert answer_fault(request, {"success": True}) == ""
        return
    for data in ({}, {"other": 1}, "text", None):
        assert answer_fault(request, {"success": True, "data": data}) == f"its data has no {key!r}; return {example}"
    for answer in ({"success": True, "cancelled": True}, {"success": True, "error": "no"}):
        assert answer_fault(request, answer) == f"its data has no {key!r}; return {example}"
    assert answer_fault(request, {"success": True, "data": {key: True}}) == ""


@each_row(
    ("answer", "told"),
    [
        *(({"success": False}, ""), ({"success": False, "cancelled": False}, ""), ({"cancelled": True}, "")),
        *(({"success": None, "cancelled": True}, ""), ({"error": {"code": "NO"}}, "")),
        *(({"cancelled": 1}, _SAYS_NOTHING), ({"cancelled": False}, _SAYS_NOTHING), ({"error": None}, _SAYS_NOTHING)),
        ({"success": "yes"}, _SAYS_NOTHING),
        *(({"success": True, "data": {"confirmed": value}}, "") for value in (True, False)),
        ({"success": True, "data": {"confirmed": 1}}, "confirmed is of the type int, not True or False"),
    ],
)
def test_answer_to_question_is_yes_no_or_declined(answer: object, told: str) -> None:
    assert fault("confirm", answer).partition("; return")[0] == told


@each_row(
    ("params", "options"),
    [
        ({"options": ["a", 2]}, [("a", "a"), ("2", "2")]),
        ({"choices": [{"value": 1, "label": "One"}]}, [("1", "One")]),
        ({"options": [{"id": "b", "title": "Bee"}, {"id": "c"}]}, [("b", "Bee"), ("c", "c")]),
        ({"options": [{"value": "v", "id": "i", "label": "L", "title": "T"}]}, [("v", "L")]),
        ({"options": ["a"], "choices": ["b"], "schema": {"enum": ["c"]}}, [("a", "a")]),
        ({"choices": ["b"], "schema": {"enum": ["c"]}}, [("b", "b")]),
        ({"schema": {"enum": ["c"]}}, [("c", "c")]),
        ({"schema": 5}, []),
        ({"options": "abc"}, []),
        ({}, []),
    ],
)
def test_elicitation_options_have_value_and_label(params: dict[str, object], options: list[tuple[str, str]]) -> None:
    assert options_of(params) == options


def test_elicitation_error_lists_10_options_and_80_characters() -> None:
    def wrong(value: object, options: int) -> str:
        return fault("select", {"success": True, "data": {"selected": value}}, options=[*range(options)])

    ten = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert wrong("x" * 80, 10) == f"selected is {'x' * 80!r}, which is none of {ten}"
    assert wrong("x" * 81, 11) == f"selected is {'x' * 80!r}, which is none of {ten} …"
    assert wrong(["0", 5, "x", "y"], 10) == f"selected is 'x', which is none of {ten}"
    assert [wrong(value, 10) for value in (5, "5", ["1", 2], [])] == [""] * 4
    assert wrong("anything", 0) == ""  # a question without options has no wrong answer


_NAMED = {"schema": {"properties": {"name": {"maxLength": 2}}}}


@each_row(
    ("params", "value", "told"),
    [
        ({"schema": {"maxLength": 2}}, "abc", 'value: "abc" is longer than 2 characters'),
        (_NAMED, "ab", ""),
        (_NAMED, "abc", 'value.name: "abc" is longer than 2 characters'),
        (_NAMED, {"name": "abc"}, 'value.name: "abc" is longer than 2 characters'),
        ({"schema": {"type": "integer"}}, "7", 'value: "7" is not of type "integer"'),
        ({"schema": {"$ref": "https://a.test/"}}, 1, ""),
        ({"schema": "text"}, 1, ""),
        # a form of several fields takes an object
        ({"schema": {"type": "object", "properties": {"a": {}, "b": {}}}}, "x", 'value: "x" is not of type "object"'),
        # what may be a secret is not shown
        ({"schema": PIN}, "123", "value.pin does not fit the schema"),
        *(
            ({"schema": {"maxLength": 2}, name: text}, "123", "value does not fit the schema")
            for name, text in (
                *(("title", "Your PIN"), ("message", "Password"), ("prompt", "API key"), ("question", "Token")),
            )
        ),
        ({"schema": {"maxLength": 2}, "label": "Token", "title": 5}, "123", 'value: "123" is longer than 2 characters'),
    ],
)
def test_elicitation_value_is_validated_by_its_schema(params: dict[str, object], value: object, told: str) -> None:
    assert fault("input", {"success": True, "data": {"value": value}}, **params) == told
    for unsendable in (object(), {1j: 1}):
        assert fault("input", {"success": True, "data": {"value": unsendable}}).startswith("it is not JSON: ")
    assert fault("resource", {"success": True, "data": {"content": "text"}}, schema={"type": "integer"}) == ""


@each_row(
    ("method", "params", "data"),
    [
        ("input", {"default": "x"}, {"value": "x"}),
        ("preference", {"schema": {"default": 0}}, {"value": 0}),
        ("select", {"default": "a", "schema": {"default": "b"}}, {"selected": "a"}),
        ("confirm", {"default": True}, {"confirmed": True}),
        ("confirm", {"default": False, "destructive": True}, {"confirmed": False}),
        ("input", {"default": "x", "destructive": True}, {"value": "x"}),
        ("confirm", {"default": True, "destructive": True}, None),
        ("confirm", {"default": True, "schema": {"destructive": True}}, None),
        ("confirm", {"default": "yes", "destructive": True}, None),
        ("input", {}, None),
        ("select", {"options": ["a", "b"]}, None),
        ("input", {"default": None, "schema": "x"}, None),
        ("file", {"default": "x"}, None),
    ],
)
def test_app_default_answers_elicitation(method: str, params: dict[str, object], data: object) -> None:
    answer = default_answer(ElicitationRequest(method=f"elicitation/{method}", params=params))
    assert answer == (DECLINED if data is None else {"success": True, "data": data})
    assert DECLINED == {"success": False, "cancelled": True}
    error = {"code": "INVALID_ANSWER", "message": "no", "retryable": False}
    assert refused_answer("no") == {"success": False, "error": error} and INVALID_ANSWER == "INVALID_ANSWER"
