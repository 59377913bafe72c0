"""Prompts, one for each connected app, and the completion of their arguments, by clients of both eras."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference, TextContent

from tests.support.apps import NotingTransport
from tests.support.mcp_clients import APP, URL, Apps, Serve, called, files_of


def declaring() -> Apps:
    """An app that declares the parameters of a capability."""
    colours = {"type": "string", "enum": ["red", "green", "grey"]}
    properties = {"text": {"type": "string"}, "colour": colours, "loud": {"type": "boolean"}, "any": True}
    declared: list[dict[str, object]] = [{"name": name, "description": f"does {name}"} for name in APP]
    declared[0]["inputSchema"] = {"type": "object", "properties": properties}
    return Apps(APP, lambda handlers: NotingTransport(handlers, list=declared))


async def completed(client: Client, argument: str, typed: str, prompt: str, **before: str) -> list[str]:
    ref = PromptReference(name=prompt)
    result = await client.complete(ref, {"name": argument, "value": typed}, before or None)
    return result.completion.values


async def text_of(client: Client, name: str, arguments: Mapping[str, str] | None = None) -> str:
    (message,) = (await client.get_prompt(name, dict(arguments or {}))).messages
    assert message.role == "user" and isinstance(message.content, TextContent)
    return message.content.text


async def test_each_app_has_a_prompt(serve: Serve) -> None:
    async with serve(declaring(), connected=False) as client:
        assert (await client.list_prompts()).prompts == []
        sessions = [(await called(client, "abp_connect", url=URL, new=True))["session"] for _ in range(2)]
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["use_in_process_app", "use_in_process_app_2"]
        text = await text_of(client, "use_in_process_app_2")
        assert sessions[1] in text and "- text.shout: does text.shout" in text and "`files`" in text
        given = {"capability": "text.shout", "parameter": "text", "value": "hi", "artifact": "a1"}
        text = await text_of(client, "use_in_process_app", given)
        assert text.endswith("Call text.shout now, with text = hi, and hand over the artifact a1.")
        await called(client, "abp_disconnect", session=sessions[0])
        assert len((await client.list_prompts()).prompts) == 1
        with pytest.raises(MCPError, match="unknown prompt"):
            await client.get_prompt("use_in_process_app_2", {})


async def test_prompt_arguments_are_completed(serve: Serve) -> None:
    async with serve(declaring()) as client:
        ids = [files_of(await called(client, "abp_text_shout", text=text))[0]["id"] for text in "ab"]
        name = "use_in_process_app"
        assert await completed(client, "capability", "", name) == list(APP)
        assert await completed(client, "capability", "TEXT", name) == ["text.shout"]
        before = {"capability": "text.shout"}
        assert await completed(client, "parameter", "", name, **before) == ["text", "colour", "loud", "any"]
        assert await completed(client, "parameter", "", name, capability="gone") == []
        assert await completed(client, "value", "", name, **before, parameter="any") == []
        assert await completed(client, "value", "g", name, **before, parameter="colour") == ["green", "grey"]
        assert await completed(client, "value", "", name, **before, parameter="loud") == ["true", "false"]
        assert await completed(client, "value", "", name, **before, parameter="text") == []
        assert await completed(client, "artifact", "", name) == ids[::-1]
        assert await completed(client, "else", "", name) == await completed(client, "capability", "", "gone") == []
        template = ResourceTemplateReference(uri="artifact://{id}{?offset,length}")
        result = await client.complete(template, {"name": "id", "value": ids[0]})
        assert result.completion.values == [ids[0]] and result.completion.total == 1
