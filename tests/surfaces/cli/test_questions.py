"""Questions of an app: at a terminal a person answers them, elsewhere a note says what became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.command_line import CTRL_C, CTRL_D, CommandLine, Terminal
from webapp_fixture import Fixture

DECLINED = {"success": False, "cancelled": True}
SIZES = [{"value": "s", "label": "Small"}, {"value": "l", "label": "Large"}]
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "description": "As on the door"},
        "age": {"type": "integer", "minimum": 0},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "member": {"type": "boolean", "default": True},
    },
}

Questions: TypeAlias = list[tuple[str, dict[str, object], list[tuple[str, str]], object]]
#: Each question, what is typed at which prompt, and the answer that the app gets.
ASKED: Questions = [
    ("elicitation/confirm", {"message": "Go on?"}, [("[y/n]: ", "perhaps"), ("[y/n]: ", "Y")], {"confirmed": True}),
    ("elicitation/confirm", {"default": True, "destructive": True}, [("[y/N]: ", "")], {"confirmed": False}),
    ("elicitation/confirm", {"message": "Go on?"}, [("[y/n]: ", CTRL_C)], DECLINED),
    ("elicitation/input", {"message": "Who?"}, [("answer: ", ""), ("answer: ", " Ann ")], {"value": " Ann "}),
    (
        "elicitation/input",
        {"message": "How many?", "schema": {"type": "integer", "maximum": 9}},
        [
            *(("answer (integer): ", "x"), ("that is not a valid integer", "")),
            *(("answer (integer): ", "12"), ("maximum", ""), ("answer (integer): ", "7")),
        ],
        {"value": 7},
    ),
    ("elicitation/input", {"message": "Who?"}, [("answer: ", CTRL_D)], DECLINED),
    ("elicitation/select", {"options": SIZES}, [("choose 1-2: ", "3"), ("choose 1-2: ", "2")], {"selected": "l"}),
    (
        "elicitation/select",
        {"options": SIZES, "multiple": True},
        [("choose 1-2, several with commas: ", "2, Small")],
        {"selected": ["l", "s"]},
    ),
    (
        "elicitation/preference",
        {"title": "About you", "schema": PERSON},
        [
            *(("As on the door", ""), ("name: ", "A"), ("name: ", "Ann"), ("age (integer) (may be left out): ", "")),
            *(("2  blue", ""), ("colour 1-2 (may be left out): ", "2"), ("member [Y/n]: ", "n")),
        ],
        {"value": {"name": "Ann", "colour": "blue", "member": False}},
    ),
    (
        "sampling/create",
        {"task": "Summarize this text", "context": "A long text"},
        [("Summarize this text", ""), ("A long text", ""), ("answer: ", "short")],
        "short",
    ),
    (
        "elicitation/confirm",
        {"message": "Drop?", "destructive": True},
        [("Destructive: the app says", ""), ("[y/N]: ", "y")],
        {"confirmed": True},
    ),
    (
        "elicitation/resource",
        {"type": "text/plain"},
        [("type: text/plain", ""), ("file: ", "/dev/null/x"), ("ot a directory", "")],
        None,
    ),
    ("custom/question", {"message": "?"}, [("which cannot be answered at a terminal", "")], DECLINED),
]
#: Other ways to the same answers.
MORE: Questions = [
    ("elicitation/confirm", {"message": "Go on?", "default": True}, [("[Y/n]: ", "")], {"confirmed": True}),
    ("elicitation/input", {"default": "Ann"}, [("answer [Ann]: ", "")], {"value": "Ann"}),
    (
        "elicitation/input",
        {"schema": {"type": "number"}},
        [("(number): ", "nan"), ("(number): ", "2.5")],
        {"value": 2.5},
    ),
    ("elicitation/select", {"options": SIZES}, [("choose 1-2: ", "Small")], {"selected": "s"}),
    ("elicitation/select", {"options": ["a", "b"], "default": "b"}, [("choose 1-2 [b]: ", "")], {"selected": "b"}),
    ("sampling/create", {"messages": [{"content": {"text": "Rhyme"}}]}, [("Rhyme", ""), ("answer: ", "Lime")], "Lime"),
    ("elicitation/resource", {"message": "A file"}, [("file: ", "/dev/null/x"), ("ot a directory", "")], None),
]


@pytest.mark.load
@pytest.mark.parametrize("questions", [ASKED, pytest.param(MORE, marks=pytest.mark.slow)], ids=["each", "more"])
def test_terminal_user_answers_question_by_schema(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, questions: Questions
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("héllo")
    asked = tmp_path / "asked.jsonl"
    asked.write_text(
        "".join(json.dumps({"method": method, "params": params}) + "\n" for method, params, _, _ in questions)
    )

    def person(terminal: Terminal) -> None:
        for method, _, typed, _ in questions:
            for prompt, text in typed:
                if prompt.endswith(": "):
                    terminal.answer(prompt, text, end="" if text in (CTRL_C, CTRL_D) else "\r")
                else:
                    terminal.wait_for(prompt)
            if method == "elicitation/resource":
                terminal.answer("file: ", str(note))

    ran = abp.at_terminal("call", workbench.ws_url, "form.ask", "--each", asked, "--json", script=person)
    assert ran.status == 0, ran
    responses = [one["data"]["response"] for one in ran.document["results"]]
    for (method, params, _, expected), response in zip(questions, responses, strict=True):
        if method == "elicitation/resource":
            assert (response["data"]["text"], response["data"]["filename"]) == ("héllo", "note.txt")
        elif expected == DECLINED:
            assert response == DECLINED, (method, params)
        else:
            data = {"result": expected} if method == "sampling/create" else expected
            assert response == {"success": True, "data": data}, (method, params)
    assert "The app asks (Ctrl-C declines):\n  Go on?\n" in ran.err
    declined = [expected for *_, expected in questions if expected == DECLINED]
    assert ran.err.count(": declined\n") == len(declined)  # Ctrl-C, Ctrl-D, and a method that nobody knows


def test_input_typed_before_question_does_not_answer_it(abp: CommandLine, workbench: Fixture) -> None:
    def person(terminal: Terminal) -> None:
        terminal.press("y\ry\r")
        terminal.answer("[y/n]: ", "n")

    asked = ("-p", "method=elicitation/confirm", "-p", 'params={"message": "Go on?"}')
    ran = abp.at_terminal("call", workbench.ws_url, "form.ask", *asked, "--json", script=person)
    assert ran.document["data"]["response"] == {"success": True, "data": {"confirmed": False}}


@pytest.mark.slow
def test_input_typed_before_question_in_shell_does_not_answer_it(abp: CommandLine, workbench: Fixture) -> None:
    """The terminal's keys may have been read already."""

    def in_the_shell(terminal: Terminal) -> None:
        line = 'form.ask method=elicitation/confirm params={"message":"Go on?"}'
        terminal.answer("abp> ", f"{line}\ry\ry\r", end="")
        terminal.answer("[y/n]: ", "n")
        terminal.answer("abp> ", CTRL_D, end="")

    ran = abp.at_terminal("shell", workbench.ws_url, script=in_the_shell, stdout=True)
    assert '"confirmed": false' in ran.err


def test_app_text_has_no_effect_on_terminal(abp: CommandLine, workbench: Fixture) -> None:
    hostile = json.dumps({"message": "\x1b]0;title\x07", "schema": {"properties": {"a\nb\x1b[31m": {}}}})
    args = ("call", workbench.ws_url, "form.ask", "-p", "method=elicitation/input", "-p", f"params={hostile}", "--json")
    ran = abp.at_terminal(*args, script=lambda terminal: terminal.answer("(may be left out): ", "x"))
    assert "\x1b" not in ran.err and "a b" in ran.err


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_secret_is_not_echoed_while_typed(
    abp: CommandLine, workbench: Fixture, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("PROMPT_TOOLKIT_NO_CPR", "1")  # nobody answers where the cursor is
    params = '{"schema": {"required": ["password"], "properties": {"password": {"type": "string"}}}}'
    args = ("call", workbench.ws_url, "form.ask", "-p", "method=elicitation/input", "-p", f"params={params}", "--json")
    ran = abp.at_terminal(*args, script=lambda terminal: terminal.answer("password:", "hunter2"), term=term)
    assert "hunter2" not in ran.err
    assert ran.document["data"]["response"]["data"] == {"value": {"password": "hunter2"}}


@pytest.mark.parametrize(
    ("method", "params", "response", "note"),
    [
        ("sampling/create", {"task": "Sum it up"}, DECLINED, "Sum it up (sampling/create): declined, since"),
        (
            "elicitation/input",
            {"message": "Who?"},
            DECLINED,
            "Who? (elicitation/input): declined, since there is no terminal to ask at",
        ),
        (
            "elicitation/input",
            {"message": "Who?", "default": "Ann"},
            {"success": True, "data": {"value": "Ann"}},
            "Who? (elicitation/input): answered with its own default ({'value': 'Ann'}), since",
        ),
    ],
)
def test_non_terminal_note_reports_outcome_of_question(
    abp: CommandLine, workbench: Fixture, method: str, params: dict[str, object], response: object, note: str
) -> None:
    asked = json.dumps({"method": method, "params": params})
    ran = abp("call", workbench.ws_url, "form.ask", "--params", asked, "--json")
    assert ran.document["data"]["response"] == response and note in ran.err
