"""The MCP bridge with clients of both eras and an app in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.support.apps import NotingTransport, echo
from tests.support.eventually import eventually
from tests.support.mcp_clients import (
    APP,
    URL,
    Apps,
    Serve,
    called,
    files_of,
    links_of,
    newer_era,
    read_as_resource,
    refuse,
    shout,
    words,
)
from tests.support.model_rules import check_rules
from transports import BinaryData, CapabilityError, MemoryTransport
from transports.errors import CallTimeout, Disconnected
from transports.memory import Handler
from transports.protocol.messages import Message
from transports.surfaces.mcp._tool_list import FIXED_TOOLS
from transports.testing import Call


def declaring(declared: object, handlers: Mapping[str, Handler] = APP) -> Apps:
    """Apps that declare these capabilities."""
    return Apps(handlers, lambda handlers: NotingTransport(handlers, list=declared))


@pytest.mark.requirement("R6-10a", "R6-10b", "R4-8c", "R4-12d", "R4-11h", "R4-15k")
@newer_era
async def test_connect_list_describe_call_disconnect(serve: Serve) -> None:
    async with serve(connected=False) as client:
        names = "connect call result cancel status disconnect render_to_pdf screenshot artifacts read_artifact"
        assert [tool.name for tool in (await client.list_tools()).tools] == [f"abp_{name}" for name in names.split()]
        connected = await called(client, "abp_connect", url=URL)
        assert connected["app"]["name"] == "In-process app"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"abp_text_shout", "abp_job_hold"} <= set(tools)
        assert tools["abp_text_shout"].description == "Text in capitals."
        about = await client.call_tool("abp_status", {"capability": "text.shout"})
        assert words(about) == "text.shout: Text in capitals."
        assert about.structured_content["capability"]["inputSchema"] == {}
        missing = await client.call_tool("abp_status", {"capability": "text.shuot"})
        assert missing.is_error and "text.shout" in words(missing)
        document = await called(client, "abp_text_shout", text="hi")
        assert document["data"] == {"text": "HI"}
        assert document["session"] == connected["session"]
        again = await called(client, "abp_call", capability="text.shout", params={"text": "ho"})
        assert again["data"] == {"text": "HO"}
        await called(client, "abp_disconnect")
        assert "abp_text_shout" not in {tool.name for tool in (await client.list_tools()).tools}
        with pytest.raises(MCPError, match=r"unknown tool 'abp_text_shout'; list the tools again"):
            await client.call_tool("abp_text_shout", {"text": "hi"})
        listed = await called(client, "abp_artifacts")
        assert listed["total"] == 2
        answer = await client.call_tool("abp_call", {"capability": "text.shout"})
        assert answer.is_error and "Next: call abp_connect with the address of the app" in words(answer)
        answer = await client.call_tool("abp_call", {"session": "of-before", "capability": "text.shout"})
        assert answer.is_error and "no app is connected; connect one first, with its url" in words(answer)


@pytest.mark.requirement("R3-1c", "R3-2a", "R3-2c", "R3-2d", "R3-3b", "R3-6b", "R3-6c", "R3-8a", "R3-8d", "R3-9c")
async def test_tool_result_is_text_links_and_short_document(serve: Serve) -> None:
    async with serve() as client:
        answer = await client.call_tool("abp_text_shout", {"text": "hi"})
        assert words(answer).startswith('{"text": "HI"}\nOutput saved to file: ')
        (link,) = links_of(answer)
        document = answer.structured_content
        assert set(document) == {"success", "session", "data", "artifacts"}
        (artifact,) = document["artifacts"]
        assert set(artifact) == {"field", "id", "path", "mime_type", "size_bytes"}
        assert link.uri == f"artifact://{artifact['id']}"
        assert (link.mime_type, link.size) == (artifact["mime_type"], artifact["size_bytes"])
        assert json.loads(await read_as_resource(client, link.uri)) == {"text": "HI"}


async def test_answer_with_small_file_repeats_nothing(serve: Serve) -> None:
    async def generate(params: Mapping[str, object], call: Call) -> object:
        return {"file": BinaryData.from_bytes(b"\x00abcde", filename="generated.bin")}

    async with serve(Apps({"file.generate": generate})) as client:
        answer = await client.call_tool("abp_file_generate", {})
        document = answer.structured_content
        (artifact,) = files_of(document)
        assert set(document) == {"success", "session", "data"}
        assert set(document["data"]["file"]) == {"id", "path", "mime_type", "size_bytes"}
        message = answer.model_dump(by_alias=True, exclude_none=True)
        text = json.dumps(message, separators=(",", ":"))
        assert len(text) - 2 * len(artifact["path"]) < 520
        assert text.count(artifact["path"]) == text.count(artifact["id"]) == 2  # in the text or link, and in the JSON
        assert Path(artifact["path"]).read_bytes() == b"\x00abcde"


@pytest.mark.requirement("R0-1b", "R4-7a")
async def test_tool_schema_matches_capability_without_headers(serve: Serve) -> None:
    properties: dict[str, object] = {"text": {"type": "string", "x-mcp-header": "Text"}}
    # Clients of the SDK refuse a tool with a header that is not a text.
    properties |= {"loud": {"type": "boolean", "x-mcp-header": True}, "x-mcp-header": {"type": "integer"}}
    declared = {"type": "object", "properties": properties, "additionalProperties": False}
    async with serve(declaring([{"name": "text.shout", "inputSchema": declared}])) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        schema = tools["abp_text_shout"]
        brief, whole = (one["properties"]["files"] for one in (schema, tools["abp_call"]))
        assert brief["items"]["properties"].keys() == whole["items"]["properties"].keys()
        assert len(json.dumps(brief)) < 450  # of a context, in each of two hundred tools
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == {"text", "loud", "x-mcp-header", "files"}
        assert schema["properties"]["text"] == {"type": "string"}
        assert schema["properties"]["loud"] == {"type": "boolean"}
        assert schema["properties"]["x-mcp-header"] == {"type": "integer"}
        assert (await called(client, "abp_text_shout", text="hi"))["data"] == {"text": "HI"}


async def test_tool_names_meet_model_rules_and_map_to_app_names(serve: Serve) -> None:
    branches = [{"properties": {name: {"type": "array"}}, "required": [name]} for name in ("filter[a]", "$top")]
    declared = {"name": "list", "description": "words " * 1000, "inputSchema": {"anyOf": branches}}
    async with serve(declaring([declared], {"list": echo})) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for tool in tools.values():
            check_rules(tool.input_schema)
        description = str(tools["abp_list"].description)
        assert description.endswith("… Give at least one of these sets of parameters: filter_a; top.")
        assert len(description) <= 1024
        answer = await called(client, "abp_list", filter_a=[1], top=[2])
    assert answer["data"] == {"filter[a]": [1], "$top": [2]}


@pytest.mark.requirement("R4-3d")
async def test_behaviour_hints_and_parameters_of_all_apps_reach_mcp_client(serve: Serve) -> None:
    careful: dict[str, object] = {"readOnlyHint": False, "destructiveHint": True}
    careful |= {"idempotentHint": True, "openWorldHint": False}
    reading: dict[str, object] = {"readOnlyHint": True, "title": "Reads", "destructiveHint": "no", "somethingElse": 1}
    declared: dict[str, list[tuple[dict[str, object], str]]] = {
        "row.delete": [(careful, "row"), ({**careful, "idempotentHint": False}, "key")],
        "row.read": [(reading, "row"), (reading, "row")],
    }

    def make(handlers: Mapping[str, Handler]) -> MemoryTransport:
        listed = []
        for name, of_apps in declared.items():
            hints, parameter = of_apps.pop(0)
            schema = {"type": "object", "properties": {parameter: {}}}
            listed.append({"name": name, "annotations": hints, "inputSchema": schema})
        return NotingTransport(handlers, list=listed)

    async with serve(Apps(dict.fromkeys(declared, shout), make)) as client:

        async def hints() -> dict[str, object]:
            tools = (await client.list_tools()).tools
            return {
                tool.name: tool.annotations and tool.annotations.model_dump(by_alias=True, exclude_none=True)
                for tool in tools
            }

        alone = await hints()
        assert alone["abp_row_delete"] == careful and alone["abp_row_read"] == {"readOnlyHint": True}
        assert alone["abp_call"] is None  # it depends on the capability
        lookup = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        assert {alone[name] == lookup for name in ("abp_status", "abp_artifacts", "abp_read_artifact")} == {True}
        second = await called(client, "abp_connect", url=URL, new=True)
        shared = await hints()  # what only one app promises is no promise of the tool
        assert shared["abp_row_delete"] == {name: careful[name] for name in careful if name != "idempotentHint"}
        assert shared["abp_row_read"] == {"readOnlyHint": True}
        # A shared tool takes any parameters if the apps differ.
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert set(tools["abp_row_delete"]["properties"]) == {"files", "session"}
        assert set(tools["abp_row_read"]["properties"]) == {"row", "files", "session"}
        await called(client, "abp_row_delete", key="a", session=second["session"])


@pytest.mark.requirement("R6-10f")
async def test_call_with_two_apps_requires_session(serve: Serve) -> None:
    async with serve() as client:
        second = await called(client, "abp_connect", url=URL, new=True)
        answer = await client.call_tool("abp_call", {"capability": "text.shout"})
        assert answer.is_error and second["session"] in words(answer)
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "abp_text_shout"]
        assert tool.input_schema["required"] == ["session"]
        document = await called(client, "abp_text_shout", text="hi", session=second["session"])
        assert document["session"] == second["session"]
        listed = await called(client, "abp_artifacts", session=second["session"])
        assert listed["total"] == 1
        status = await called(client, "abp_status")
        assert len(status["sessions"]) == 2


async def test_connecting_open_app_returns_its_session(serve: Serve) -> None:
    """An agent that is told of an app and connects it by itself had two, and every tool then asked which."""
    async with serve(connected=False, options={"apps": (URL,)}) as client:
        await client.list_tools()
        for spelled in (URL, URL.replace("ws://app", "WS://APP")):
            again = await client.call_tool("abp_connect", {"url": spelled, "transport": "auto"})
            assert again.structured_content is not None and again.structured_content["new"] is False
            assert words(again).startswith("Already connected: ") and "`new`" in words(again)
        (only,) = (await called(client, "abp_status"))["sessions"]
        assert only["session"] == again.structured_content["session"]
        assert (await called(client, "abp_text_shout", text="a"))["data"] == {"text": "A"}
        opened = await called(client, "abp_connect", url=URL, new=True)
        assert opened["new"] is True and opened["session"] != only["session"]
        for other in ({"browser": "firefox"}, {"headless": False}, {"transport": "postmessage"}):
            answer = await client.call_tool("abp_connect", {"url": URL, **other})
            assert "Already connected" not in words(answer), other


async def test_message_and_next_step_agree_after_lost_connection(serve: Serve) -> None:
    sent, unsent = Disconnected("it is gone"), Disconnected("it is gone", sent=False)
    over = Disconnected("it is gone; connect again", retryable=False)
    careful, connect = "it may have run: look at the app before you call again", "connect again with abp_connect"
    errors = iter((sent, unsent, over, CallTimeout("no answer")))

    class Lost(MemoryTransport):
        async def request(self, message: Message, *, timeout: float) -> Message:
            if message.type == "capabilities/call":
                raise next(errors)
            return await super().request(message, timeout=timeout)

    async with serve(Apps(make=Lost)) as client:
        for message, then in (
            (f"it is gone; {careful}", f"{careful}; if that fails too, {connect}"),
            ("it is gone", f"call again; if that fails too, {connect}"),
            (f"it is gone; connect again; {careful}", f"{connect}; {careful}"),
            ("no answer", f"{careful}, with a longer `timeout` or for less at once"),
        ):
            said = words(await client.call_tool("abp_text_shout", {"text": "hi"}))
            assert said.startswith(f"text.shout: {message} ["), said
            assert f"\nNext: {then}\n" in f"{said}\n", said


@pytest.mark.requirement("R6-10e", "R0-3c", "R4-11h", "R4-14n", "R4-15k")
async def test_bridge_error_names_next_step(serve: Serve) -> None:
    errors: list[tuple[str, Mapping[str, object], str]] = [
        ("abp_call", {"capability": "text.shuot"}, "abp_status lists what the app can do"),
        ("abp_call", {"capability": "text.shout", "session": "gone"}, "abp_status lists the sessions"),
        ("abp_connect", {"url": URL, "new": True}, "disconnect one with abp_disconnect"),
        # a model cannot start programs
        ("abp_connect", {"url": "mcp+stdio:rm -rf /"}, "correct the argument url and call again"),
        ("abp_connect", {"url": "mcp:/etc/mcp.json#x"}, "correct the argument url and call again"),
        ("abp_connect", {"name": "gone"}, "correct the argument name and call again"),
        ("abp_result", {"call": "gone"}, "abp_status lists the calls"),
        ("abp_cancel", {"call": "gone"}, "abp_status lists the calls"),
        ("abp_read_artifact", {"id": "gone_000000000000"}, "abp_artifacts lists the artifacts"),
        (
            "abp_fail",
            {"code": "CAPABILITY_UNAVAILABLE"},
            "meet the requirement, then call again; abp_status lists what is available",
        ),
        ("abp_fail", {"code": "CANCELLED"}, "ask the user whether to go on"),
        ("abp_fail", {"code": "INVALID_ANSWER"}, "call again, and answer the app's question as it asks"),
        ("abp_fail", {"code": "PERMISSION_REQUIRED"}, "ask the user"),
        ("abp_fail", {"code": "PERMISSION_DENIED"}, "ask the user"),
        ("abp_fail", {"code": "NOT_SUPPORTED"}, "check with the user that this app speaks ABP"),
        ("abp_fail", {"code": "SOMETHING_ELSE"}, "do not repeat it unchanged; tell the user if there is no other way"),
    ]

    async def fail(params: Mapping[str, object], call: Call) -> object:
        raise CapabilityError("it cannot be done", code=str(params["code"]))

    app: Mapping[str, Handler] = {"fail": fail, "text.shout": shout, "print.page": refuse}
    async with serve(Apps(app), options={"max_sessions": 1}) as client:
        for tool, arguments, step in errors:
            answer = await client.call_tool(tool, arguments)
            assert answer.is_error, (tool, arguments)
            assert words(answer).endswith(f"\nNext: {step}"), words(answer)
        refused = await client.call_tool("abp_print_page", {})
        assert refused.is_error and refused.structured_content["error"]["code"] == "PRINTER_EMPTY"
        for part in ("no paper", "[PRINTER_EMPTY]", "Retryable: no", "Alternatives: text.shout", "Next: "):
            assert part in words(refused)
        two_targets = await client.call_tool("abp_connect", {"url": URL, "name": "crm"})
        assert "give exactly one of url, extensionPath, extensionId and name" in words(two_targets)
        unknown = await client.call_tool("abp_call", {"capability": "text.shuot"})
        assert unknown.structured_content["error"]["alternatives"] == ["text.shout"]
        wrong = await client.call_tool("abp_call", {"capabilty": "text.shout"})
        assert wrong.is_error and wrong.structured_content["error"]["code"] == "INVALID_PARAMS"


@pytest.mark.requirement("R6-5i")
@newer_era
async def test_progress_reaches_mcp_client_and_increases(serve: Serve) -> None:
    async def work(params: Mapping[str, object], call: Call) -> object:
        for percentage in (50, 40, 50, 100):
            await call.progress(percentage=percentage)
        return None

    reported: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))

    async with serve(Apps({"work": work, "text.shout": shout})) as client:
        for tool, expected in (
            ("abp_text_shout", [(1, 2, "thinking"), (2, 2, None)]),
            ("abp_work", [(50, 100, None), (100, 100, None)]),
        ):
            reported.clear()
            await client.call_tool(tool, {}, progress_callback=on_progress)
            await asyncio.sleep(0.05)
            assert reported == expected


@pytest.mark.requirement("R6-7b", "R3-7d")
@newer_era
async def test_a_cancelled_request_cancels_the_call_in_the_app(serve: Serve) -> None:
    apps = Apps()
    async with serve(apps) as client:
        task = asyncio.ensure_future(client.call_tool("abp_job_hold", {}))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: apps.transports[0].cancelled)
        assert (await called(client, "abp_text_shout", text="on"))["data"] == {"text": "ON"}


async def test_pdf_and_screenshot_tools_require_a_page(serve: Serve) -> None:
    async with serve() as client:
        for tool, arguments in (("abp_render_to_pdf", {"html": "<h1>Hi</h1>"}), ("abp_screenshot", {})):
            answer = await client.call_tool(tool, arguments)
            assert answer.is_error and "needs an app in a page" in words(answer)
            elsewhere = await client.call_tool(tool, {**arguments, "options": {"path": "/tmp/x"}})
            assert elsewhere.structured_content["error"]["code"] == "INVALID_PARAMS"
            assert "path" in words(elsewhere)


async def test_parameters_are_listed_and_null_for_an_optional_one_is_left_out(serve: Serve) -> None:
    """Clients send null for what they leave out."""
    schema = {
        "type": "object",
        "properties": {
            "size": {"enum": ["a4", "letter"]},
            "margin": {"type": "object", "properties": {"top": {"type": "number"}, "left": {"type": "number"}}},
            "page": {"type": ["integer", "null"]},
            "any": {},
            "either": {"anyOf": [{"type": "string"}, {"type": "array"}]},
            "text": {"type": "string"},
        },
        "required": ["text"],
    }
    left_out = dict.fromkeys(schema["properties"]) | {"text": "a", "margin": {"top": 1, "left": None}}
    echoed = {"text": "a", "margin": {"top": 1}, "page": None, "any": None}
    shown = "text: string, size?: any, margin?: object, page?: integer | null, any?: any, either?: any"
    nothing = {name: dict.fromkeys(tool.input_schema["properties"]) for name, tool in FIXED_TOOLS.items()}

    apps = declaring([{"name": "print.page", "inputSchema": schema}], {"print.page": echo})
    async with serve(apps, connected=False) as client:
        opened = await client.call_tool("abp_connect", {**nothing["abp_connect"], "url": URL})
        (capability,) = opened.structured_content["capabilities"]
        assert capability["parameters"] == shown
        for said in (opened, await client.call_tool("abp_status", {})):
            assert f"print.page({shown})" in words(said)
        answer = await called(client, "abp_print_page", **left_out, files=None)
        assert answer["data"] == echoed
        answer = await called(
            client, "abp_call", **{**nothing["abp_call"], "capability": "print.page", "params": left_out}
        )
        assert answer["data"] == echoed
        for tool in ("abp_status", "abp_artifacts", "abp_disconnect"):
            await called(client, tool, **nothing[tool])


async def test_list_or_object_may_be_given_as_its_json(serve: Serve) -> None:
    """As some clients and models send them. A text stays a text wherever one fits."""
    optional = {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}
    properties = {"pages": optional, "margin": {"type": "object"}, "text": {"type": "string"}, "any": {}}

    declared = {"name": "print.page", "inputSchema": {"type": "object", "properties": properties}}
    written = {"pages": "[1, 2]", "margin": ' {"top": 1}', "text": "[1]", "any": "{}"}
    meant = {**written, "pages": [1, 2], "margin": {"top": 1}}
    async with serve(declaring([declared], {"print.page": echo})) as client:
        assert (await called(client, "abp_print_page", **written))["data"] == meant
        params = json.dumps(written)
        assert (await called(client, "abp_call", capability="print.page", params=params))["data"] == meant
        answer = await client.call_tool("abp_print_page", {"margin": "{1"})
        assert answer.is_error and 'params.margin: "{1" is not of type "object"' in words(answer)
        # A request may hold 50,000 values, also as a text.
        answer = await client.call_tool("abp_print_page", {"pages": "[" + "1," * 50_000 + "1]"})
        assert answer.is_error and "params.pages: fits no alternative" in words(answer)
