"""Questions of apps and changes of the list of tools, for clients of both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    TextContent,
)

from tests.support.mcp_clients import ERAS, URL, Apps, Notifications, Serve, both_eras, called, newer_era
from tests.support.rows import each_row
from tests.support.slow import slow_but
from transports.testing import Call


async def ask(params: Mapping[str, Any], call: Call) -> object:
    """Ask the question that the parameters describe."""
    return dict(await call.elicit(params["method"], params["params"]))


async def ask_twice(params: Mapping[str, Any], call: Call) -> object:
    first = await call.elicit("elicitation/input", {"message": "First?"})
    await call.progress(progress=1, total=2)
    second = await call.elicit("elicitation/confirm", {"message": "Second?"})
    return [first["data"]["value"], second["data"]["confirmed"]]


APP = {"form.ask": ask, "form.twice": ask_twice}


class Person:
    """Answers forms, and remembers them."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.answers = list(answers)
        self.asked: list[ElicitRequestParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self.answers.pop(0)


def accepts(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


SELECT = {"message": "Which?", "options": [{"value": "a", "label": "A"}, {"value": "b", "label": "B"}]}


WHO = {"message": "Who?", "schema": {"type": "object", "properties": {"name": {"type": "string"}}}}
QUESTIONS: list[tuple[str, dict[str, Any], ElicitResult, object]] = [
    ("input", {"message": "Name?"}, accepts(value="Ann"), {"value": "Ann"}),
    ("preference", {"message": "Size?", "schema": {"type": "integer"}}, accepts(value=3), {"value": 3}),
    ("confirm", {"message": "Sure?", "destructive": True}, accepts(confirmed=True), {"confirmed": True}),
    ("select", SELECT, accepts(selected="b"), {"selected": "b"}),
    ("input", WHO, accepts(name="Ann"), {"value": {"name": "Ann"}}),
]


@pytest.mark.requirement("R6-6a")
@both_eras
async def test_user_answers_app_through_elicitation(serve: Serve) -> None:
    reported: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    answers = [answer for _, _, answer, _ in QUESTIONS]
    declined, twice = ElicitResult(action="decline"), (accepts(value="x"), accepts(confirmed=False))
    person = Person(*answers, declined, *twice)
    async with serve(Apps(APP), elicitation_callback=person) as client:
        for method, params, _, data in QUESTIONS:
            document = await called(client, "abp_form_ask", method=f"elicitation/{method}", params=params)
            assert document["data"] == {"success": True, "data": data}
        sure = {"message": "Sure?", "default": True}
        document = await called(client, "abp_form_ask", method="elicitation/confirm", params=sure)
        assert document["data"] == {"success": False, "cancelled": True}
        answer = await client.call_tool("abp_form_twice", {}, progress_callback=on_progress)
        assert answer.structured_content["data"] == ["x", False] and reported == [1]
    messages = [asked["message"] for _, asked, _, _ in QUESTIONS]
    assert [asked.message.splitlines()[0] for asked in person.asked] == [*messages, "Sure?", "First?", "Second?"]


@pytest.mark.parametrize(
    "params",
    [
        {"message": "Delete all?", "destructive": True},
        {"message": "Delete all?" + "\n" * 3000, "schema": {"destructive": True, "default": True}},
    ],
)
async def test_elicitation_marks_destructive_questions(serve: Serve, params: dict[str, Any]) -> None:
    person = Person(accepts(confirmed=False), accepts(confirmed=True))
    async with serve(Apps(APP), elicitation_callback=person) as client:
        for question in (params, {"message": "Save?"}):
            await called(client, "abp_form_ask", method="elicitation/confirm", params=question)
    destructive, harmless = person.asked
    assert isinstance(destructive, ElicitRequestFormParams)
    assert destructive.message.startswith("Delete all?\n")
    assert destructive.message.endswith("\nDestructive: the app says that this may delete or overwrite something.")
    assert destructive.requested_schema["properties"]["confirmed"]["default"] is False
    assert harmless.message == "Save?"


@pytest.mark.requirement("R6-6e")
@newer_era
async def test_client_without_elicitation_gets_default_answer(serve: Serve) -> None:
    declined = {"success": False, "cancelled": True}
    async with serve(Apps(APP)) as client:
        for method, params, data in (
            ("elicitation/input", {"message": "Name?", "default": "Bob"}, {"success": True, "data": {"value": "Bob"}}),
            ("elicitation/resource", {}, declined),
            ("sampling/create", {}, declined),
        ):
            assert (await called(client, "abp_form_ask", method=method, params=params))["data"] == data


@pytest.mark.requirement("R6-6f", "R6-6g")
@newer_era
async def test_client_model_answers_app_sampling(serve: Serve) -> None:
    asked: list[CreateMessageRequestParams] = []

    async def model(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(params)
        return CreateMessageResult(role="assistant", content=TextContent(text="Paris"), model="test")

    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": {"type": "text", "text": "Hm"}}]
    more = {"systemPrompt": "Be brief", "maxTokens": 7, "temperature": 0, "stopSequences": ["."]}
    async with serve(Apps(APP), sampling_callback=model) as client:
        task = {"task": "Summarize this text", "context": "A long text"}
        for params in ({"prompt": "Capital?"}, {"messages": messages, **more}, task, {"messages": messages, **task}):
            document = await called(client, "abp_form_ask", method="sampling/create", params=params)
            assert document["data"] == {"success": True, "data": {"result": "Paris"}}
        document = await called(client, "abp_form_ask", method="sampling/create", params={"messages": [1, {}]})
        assert document["data"] == {"success": False, "cancelled": True}
    first, second, third, fourth = asked
    assert [(one.role, one.content.text) for one in third.messages] == [("user", "Summarize this text\nA long text")]  # type: ignore[union-attr]
    assert [one.role for one in fourth.messages] == ["user", "assistant", "user"]
    assert fourth.messages[2].content == third.messages[0].content
    assert [(one.role, one.content.text) for one in first.messages] == [("user", "Capital?")]  # type: ignore[union-attr]
    assert [(one.role, one.content.text) for one in second.messages] == [("user", "Hello"), ("assistant", "Hm")]  # type: ignore[union-attr]
    assert (second.system_prompt, second.max_tokens, second.temperature) == ("Be brief", 7, 0)
    assert second.stop_sequences == ["."] and first.max_tokens > 0


@each_row("has_model", [True, False])
@newer_era
async def test_elicitation_without_model_or_text_answer_is_declined(serve: Serve, has_model: bool) -> None:
    async def model(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        picture = ImageContent(data="AAAA", mime_type="image/png")
        return CreateMessageResult(role="assistant", content=picture, model="test")

    more: dict[str, Any] = {"sampling_callback": model} if has_model else {"elicitation_callback": Person()}
    async with serve(Apps(APP), **more) as client:
        document = await called(client, "abp_form_ask", method="sampling/create", params={"prompt": "Draw"})
        assert document["data"] == {"success": False, "cancelled": True}


@pytest.mark.parametrize("era", ["2026-07-28"])  # older clients are asked while the request is open
async def test_question_state_cannot_be_forged_or_reused(serve: Serve) -> None:
    async with serve(Apps(APP), elicitation_callback=Person()) as client:
        arguments = {"method": "elicitation/input", "params": {"message": "Name?"}}

        async def again(state: str, name: str = "abp_form_ask") -> Any:
            responses = {"question-1": accepts(value="Ann")}
            return await client.session.call_tool(
                name, arguments, input_responses=responses, request_state=state, allow_input_required=True
            )

        first = await client.session.call_tool("abp_form_ask", arguments, allow_input_required=True)
        assert isinstance(first, InputRequiredResult) and first.request_state
        with pytest.raises(MCPError):
            await again(first.request_state[:-2] + "AA")
        assert (await again(first.request_state)).structured_content["data"]["data"] == {"value": "Ann"}
        late = await again(first.request_state)
        assert late.is_error and late.structured_content["error"]["code"] == "SESSION_EXPIRED"
        asked = await client.session.call_tool("abp_form_ask", arguments, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        left_out = await client.session.call_tool("abp_form_ask", arguments, request_state=asked.request_state)
        assert left_out.structured_content
        assert left_out.structured_content["data"] == {"success": False, "cancelled": True}


@pytest.mark.parametrize("era", slow_but(ERAS, "legacy"))
async def test_calls_waiting_for_answer_end_with_bridge(serve: Serve, era: str) -> None:
    apps = Apps(APP)

    async def forever(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(30):
        async with serve(apps, elicitation_callback=forever) as client:
            arguments = {"method": "elicitation/input", "params": {"message": "Name?"}}
            task = asyncio.ensure_future(client.call_tool("abp_form_ask", arguments))
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.wait((task,))


TITLED = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
FIELDS: dict[str, object] = {
    "one": {"type": "string", "oneOf": TITLED, "default": "a"},
    "old": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    "some": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "default": ["a"]},
    "more": {"type": "array", "items": {"anyOf": TITLED}},
    "mail": {"type": "string", "format": "email"},
    "number": {"type": "number"},
}
DEEP = {"deep": {"type": "array", "items": {"type": "object"}}, "object": {"type": "object"}}


@pytest.mark.parametrize(
    ("kind", "params", "properties"),
    [
        (
            "input",
            {"schema": {"type": "object", "properties": {**FIELDS, **DEEP}}},
            {**FIELDS, "deep": {"type": "string"}, "object": {"type": "string"}},
        ),
        ("select", {**SELECT, "multiple": True}, {"selected": {"type": "array", "items": {"anyOf": TITLED}}}),
        ("select", {"options": ["a", "b"]}, {"selected": {"type": "string", "enum": ["a", "b"]}}),
        (
            "select",
            {"options": ["a", "b"], "multiple": True},
            {"selected": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}},
        ),
    ],
)
async def test_elicitation_forms_keep_allowed_fields_and_choice_titles(
    serve: Serve, kind: str, params: Mapping[str, object], properties: Mapping[str, object]
) -> None:
    person = Person(ElicitResult(action="cancel"))
    async with serve(Apps(APP), elicitation_callback=person) as client:
        await called(client, "abp_form_ask", method=f"elicitation/{kind}", params={"message": "?", **params})
    (form,) = person.asked
    assert isinstance(form, ElicitRequestFormParams) and form.requested_schema["properties"] == properties


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-10c")
@both_eras
async def test_client_is_notified_when_tools_change(serve: Serve, era: str) -> None:
    apps, notifications = Apps(), Notifications()
    async with (
        serve(apps, connected=False, message_handler=notifications.message) as client,
        notifications.subscribed(client, era),
    ):
        if era == "legacy":
            assert client.server_capabilities.tools and client.server_capabilities.tools.list_changed

        async def next_tools() -> set[str]:
            await notifications.until("tools")
            await asyncio.sleep(0.05)
            while not notifications.received.empty():
                notifications.received.get_nowait()
            return {tool.name for tool in (await client.list_tools()).tools}

        await called(client, "abp_connect", url=URL)
        assert "abp_text_shout" in await next_tools()
        apps.handlers = {**apps.handlers, "text.whisper": apps.handlers["text.shout"]}
        apps.transports[0]._handlers = apps.handlers
        await Call("", "", apps.transports[0]).notify("notifications/capabilities/list_changed")
        assert "abp_text_whisper" in await next_tools()
        await called(client, "abp_disconnect")
        assert "abp_text_shout" not in await next_tools()
