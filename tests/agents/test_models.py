"""Tools in the shapes of models' APIs: definitions, calls as JSON or objects, messages."""

from __future__ import annotations

import base64
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.apps import PDF
from tests.support.rows import each_row
from tests.test_public_api import loaded_by
from transports import BinaryData, MemoryTransport, Session, UsageError, connect
from transports.agents import (
    ModelTools,
    anthropic_tools,
    google_tools,
    langchain_tools,
    openai_agents_tools,
    openai_tools,
    pydantic_ai_toolset,
)
from transports.memory import Call

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ATTACH = ("image/*", "application/pdf", "text/csv")


async def draw(params: object, call: Call) -> object:
    """Draw."""
    return {
        "a": BinaryData.from_bytes(PNG, mime_type="image/png", filename="a.png"),
        "c": BinaryData.from_bytes(PDF, mime_type="application/pdf", filename="c.pdf"),
        "d": BinaryData.from_bytes(b"x,y\n1,2\n", mime_type="text/csv", filename="d.csv"),
    }


def drawing() -> Session:
    return connect("memory:", transport=MemoryTransport({"draw": draw}), store="memory:")


def url(data: bytes, mime_type: str) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


async def test_tool_definitions_have_provider_shapes(app: Session) -> None:
    by_name: dict[str, dict[str, Any]] = {}
    chat, responses = openai_tools(app, strict=True), openai_tools(app, api="responses", strict=True)
    anthropic, google = anthropic_tools(app, strict=True), google_tools(app)
    for definition in chat.definitions:
        assert {*definition} == {"type", "function"} and definition["type"] == "function"
        function: Any = definition["function"]
        by_name[function["name"]] = function
        assert {*function} == {"name", "description", "parameters", "strict"}
    digest = by_name["abp_file_digest"]
    assert digest["parameters"]["required"] == ["file"] and digest["strict"] is True
    assert by_name["abp_form_ask"]["strict"] is False, "its parameters are open"
    assert responses.definitions == [{"type": "function", **function} for function in by_name.values()]
    assert anthropic.definitions == [
        {
            "name": function["name"],
            "description": function["description"],
            "input_schema": function["parameters"],
            **({"strict": True} if function["strict"] else {}),
        }
        for function in by_name.values()
    ]
    ((declared,),) = [definition.values() for definition in google.definitions]
    assert isinstance(declared, list) and [declaration["name"] for declaration in declared] == [*by_name]
    assert {*declared[0]} == {"name", "description", "parametersJsonSchema"}
    assert json.loads(json.dumps([chat.definitions, google.definitions]))


async def test_chat_completions() -> None:
    async with drawing() as app:
        tools = openai_tools(app, attach=ATTACH)
        call: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "abp_draw", "arguments": "{}"}}
        message, answer = await tools.answer_with(call)
        assert (message["role"], message["tool_call_id"]) == ("tool", "c1")
        text = str(message["content"])
        assert "(content of a.png, image/png: not shown here)" in text and "d.csv:\nx,y" in text
        assert answer.result is not None and answer.result.artifact("c").filename == "c.pdf"
        as_object = SimpleNamespace(id="c1", function=SimpleNamespace(name="abp_drew", arguments=""))
        wrong = await tools.answer(as_object)
        assert wrong.keys() == message.keys() and "did you mean abp_draw?" in str(wrong["content"])


async def test_responses() -> None:
    async with drawing() as app:
        call = {"type": "function_call", "call_id": "c2", "name": "abp_draw", "arguments": "{}"}
        message = await openai_tools(app, api="responses", attach=ATTACH).answer(call)
        assert (message["type"], message["call_id"]) == ("function_call_output", "c2")
        parts: Any = message["output"]
        kinds = "input_text input_image input_text input_file input_text input_file"
        assert [part["type"] for part in parts] == kinds.split()
        assert parts[1]["image_url"] == url(PNG, "image/png")
        assert parts[3] == {"type": "input_file", "filename": "c.pdf", "file_data": url(PDF, "application/pdf")}
        message = await openai_tools(app, api="responses").answer({**call, "name": "abp_drew"})
        assert isinstance(message["output"], str)


async def test_anthropic_tool_result_contains_text_and_image() -> None:
    async with drawing() as app:
        tools = anthropic_tools(app, attach=ATTACH)
        call = {"type": "tool_use", "id": "t1", "name": "abp_draw", "input": {}}
        message = await tools.answer(call)
        assert (message["type"], message["tool_use_id"], message["is_error"]) == ("tool_result", "t1", False)
        content: Any = message["content"]
        assert [part["type"] for part in content] == ["text", "image", "text", "document", "text", "text"]
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
        assert content[1] == {"type": "image", "source": source}
        assert content[-1]["text"] == "(content of d.csv, text/csv: not shown here)"
        wrong = await tools.answer({**call, "name": "abp_drew"})
        assert wrong["is_error"] is True
        for arguments in ([{"a": 1}], b"{}", 5, True):
            message = await tools.answer({**call, "input": arguments})
            assert message["is_error"] and "must be an object" in str(message["content"])


async def test_gemini() -> None:
    async with drawing() as app:
        tools = google_tools(app, attach=ATTACH)
        message: Any = await tools.answer({"name": "abp_draw", "args": {}})
        response = message["functionResponse"]
        assert response["name"] == "abp_draw" and "id" not in response and "output" in response["response"]
        assert [part["inlineData"]["displayName"] for part in response["parts"]] == ["a.png", "c.pdf", "d.csv"]
        failed: Any = await tools.answer(SimpleNamespace(id="g1", name="abp_gone", args=None))
        response = failed["functionResponse"]
        assert response["id"] == "g1" and "unknown tool" in response["response"]["error"]
        failed = await tools.answer({"name": "abp_draw", "args": "no JSON"})
        assert "JSON" in failed["functionResponse"]["response"]["error"]


@each_row("made", [openai_tools, anthropic_tools, google_tools])
async def test_non_call_message_is_rejected(made: Any) -> None:
    async with drawing() as app:
        tools: ModelTools = made(app)
        for call in ({}, "text", None, {"function": 3}, SimpleNamespace(id=7)):
            with pytest.raises(UsageError, match="this is not a call of a tool"):
                await tools.answer(call)


@pytest.mark.parametrize(
    ("function", "module", "package"),
    [
        (pydantic_ai_toolset, "pydantic_ai", "pydantic-ai-slim"),
        (langchain_tools, "langchain_core", "langchain-core"),
        (openai_agents_tools, "agents", "openai-agents"),
    ],
)
async def test_missing_framework_error_includes_install_command(
    app_of: Connect, monkeypatch: pytest.MonkeyPatch, function: Any, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    async with app_of({}) as app:
        with pytest.raises(UsageError, match=rf"{function.__name__} needs {package} .*: pip install -U {package}"):
            function(app)


@pytest.mark.slow
def test_importing_agents_loads_no_framework() -> None:
    modules = loaded_by("import transports.agents\nfrom transports.agents import openai_tools, langchain_tools")
    frameworks = {"pydantic_ai", "langchain_core", "agents", "openai", "anthropic", "google", "mcp", "mcp_types"}
    assert not {name.split(".")[0] for name in modules} & frameworks
    assert "playwright" not in modules and "aiohttp" not in modules
