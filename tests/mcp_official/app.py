"""The ABP app that the official scenarios need, behind a WebSocket: each tool they call is a capability of it.

What they demand of a server's tools (pictures, errors, progress, log messages, questions to the user and to a model, a
list of tools that changes) an app does in ABP; the bridge has to make the right MCP of it.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from webapp_fixture.frames import envelope

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="  # a red one


class Talk:
    """One connection."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._keys = itertools.count()
        self.extra = False

    async def send(self, kind: str, payload: object, message_id: object = None) -> None:
        await self._socket.send(json.dumps(envelope(kind, message_id, payload=payload)))

    async def notify(self, event: str, data: object) -> None:
        await self.send("notification", {"event": event, "data": data})

    async def ask(self, method: str, **params: object) -> Json:
        """The client's ``data``, empty if it declined."""
        key = f"q{next(self._keys)}"
        self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            await self.send("elicitation/request", {"method": method, "params": params}, key)
            answer = await self._asked[key]
        finally:
            del self._asked[key]
        data: Json = answer.get("data") or {}
        return data

    async def take(self, message: Json) -> None:
        payload = message.get("payload") or {}
        match message["type"]:
            case "initialize":
                listed = [{"name": name, **about} for name, (about, _) in CAPABILITIES.items()]
                hello = {"sessionId": "1", "protocolVersion": "0.1", "app": APP, "capabilities": listed}
                await self.send("initialize-result", hello, message["id"])
            case "capabilities/call":
                await self.send("capabilities/call-result", await self._called(payload), message["id"])
            case "elicitation/response":
                if (asked := self._asked.get(message["id"])) and not asked.done():
                    asked.set_result(payload)

    async def _called(self, payload: Json) -> Json:
        _, handler = CAPABILITIES[payload["capability"]]
        try:
            return {"success": True, "data": await handler(self, payload["params"], payload["options"]["callId"])}
        except Refused as error:
            return {"success": False, "error": {"code": "OPERATION_FAILED", "message": str(error), "retryable": False}}


class Refused(Exception):
    """The app says no."""


APP = {"id": "dev.abp.official", "name": "What the official scenarios need", "version": "1"}
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CONFIRMATION = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
COLOUR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
PERSON = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
PLAIN = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": PLAIN},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}
#: Every keyword of JSON Schema 2020-12 that has to arrive unharmed (SEP-1613, SEP-2106).
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

Handler = Callable[[Talk, Mapping[str, Any], str], Awaitable[object]]


def text(words: str) -> Handler:
    async def handler(talk: Talk, params: Mapping[str, Any], call: str) -> object:
        return words

    return handler


async def picture(talk: Talk, params: Mapping[str, Any], call: str) -> object:
    return {"image": {"content": PIXEL, "mimeType": "image/png", "size": len(base64.b64decode(PIXEL))}}


async def error(talk: Talk, params: Mapping[str, Any], call: str) -> object:
    raise Refused("This tool intentionally returns an error for testing")


async def progress(talk: Talk, params: Mapping[str, Any], call: str) -> object:
    for number in (0, 50, 100):
        await talk.send("progress", {"operationId": call, "progress": number, "total": 100})
    return "done"


async def logging(talk: Talk, params: Mapping[str, Any], call: str) -> object:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await talk.notify("notifications/state/changed", words)
    return "done"


async def sampling(talk: Talk, params: Mapping[str, Any], call: str) -> object:
    answer = await talk.ask("sampling/create", prompt=params.get("prompt", "What is the capital of France?"))
    return f"LLM response: {answer.get('result')}"


def asking(*forms: Json) -> Handler:
    async def handler(talk: Talk, params: Mapping[str, Any], call: str) -> object:
        message = params.get("message", "Please answer")
        return [await talk.ask("elicitation/input", message=message, schema=form) for form in forms]

    return handler


async def change(talk: Talk, params: Mapping[str, Any], call: str) -> object:
    """One capability more, or one fewer."""
    talk.extra = not talk.extra
    capabilities = [{"name": "test_extra", "available": True}] if talk.extra else []
    await talk.notify(
        "notifications/capabilities/list_changed",
        {"added": capabilities, "removed": [] if talk.extra else ["test_extra"], "changed": []},
    )
    return "changed"


def _with(**properties: object) -> Json:
    return {"inputSchema": {"type": "object", "properties": properties, "required": list(properties)}}


TEXT = {"type": "string"}
CAPABILITIES: dict[str, tuple[Json, Handler]] = {
    "test_simple_text": ({}, text("This is a simple text response for testing.")),
    "test_image_content": ({}, picture),
    "test_error_handling": ({}, error),
    "test_tool_with_progress": ({}, progress),
    "test_tool_with_logging": ({}, logging),
    "test_logging_tool": ({}, logging),
    "test_sampling": (_with(prompt=TEXT), sampling),
    "test_elicitation": (_with(message=TEXT), asking(PERSON)),
    "test_streaming_elicitation": ({}, asking(NAME)),
    "test_elicitation_sep1034_defaults": ({}, asking(DEFAULTS)),
    "test_elicitation_sep1330_enums": ({}, asking(ENUMS)),
    "test_trigger_tool_change": ({}, change),
    "test_trigger_prompt_change": ({}, change),  # what an app can do is what its prompt says
    "test_input_required_result_elicitation": ({}, asking(NAME)),
    "test_input_required_result_sampling": ({}, sampling),
    "test_input_required_result_request_state": ({}, asking(CONFIRMATION)),
    "test_input_required_result_multi_round": ({}, asking(NAME, COLOUR)),
    "test_input_required_result_tampered_state": ({}, asking(CONFIRMATION)),
    "test_input_required_result_capabilities": ({}, sampling),
    "json_schema_2020_12_tool": ({"inputSchema": SCHEMA}, text("fits")),
}


async def _talk(socket: ServerConnection) -> None:
    talk, tasks = Talk(socket), set[asyncio.Task[None]]()
    try:
        async for message in socket:
            tasks.add(asyncio.create_task(talk.take(json.loads(message))))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serve_app() -> AsyncIterator[str]:
    """The app's address."""
    async with serve(_talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
