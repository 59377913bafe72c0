"""The cheapest client of a page that one can write: one command of CDP for a call, one text in, one text out.

Values that are given or answered by value cost the browser and Playwright's driver more.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

__all__ = ["AS_BASE64", "AS_TEXT", "Command", "Send", "command", "hashed", "parsed"]

AS_TEXT = "async function (text) { return JSON.stringify(await this.call(...JSON.parse(text))); }"
AS_BASE64 = (
    "async function (text) {"
    " return new Uint8Array((await this.call(...JSON.parse(text))).data.file.content).toBase64(); }"
)
_DECODE = msgspec.json.Decoder().decode

#: Sends one command of CDP, by any library.
Send: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
#: Makes a call, and returns the text that the page answers.
Command: TypeAlias = Callable[..., Awaitable[str]]


async def command(send: Send, name: str, params: object, options: object, function: str = AS_TEXT) -> Command:
    """The call as one ``Runtime.callFunctionOn``. Other parameters may be given to the command itself."""
    app = (await send("Runtime.evaluate", {"expression": "window.abp"}))["result"]["objectId"]
    call = {"objectId": app, "functionDeclaration": function, "awaitPromise": True, "returnByValue": True}

    async def sent(params: object = params) -> str:
        given = [{"value": json.dumps([name, params, options])}]
        answer: str = (await send("Runtime.callFunctionOn", {**call, "arguments": given}))["result"]["value"]
        return answer

    return sent


def parsed(sent: Command) -> Callable[..., Awaitable[Any]]:
    """The command with its answer as values."""

    async def values(*params: object) -> Any:
        return _DECODE(await sent(*params))

    return values


def hashed(sent: Command) -> Callable[..., Awaitable[Any]]:
    """The command with the bytes that it answers in base64, and their hash."""

    async def content(*params: object) -> tuple[bytes, str]:
        data = base64.b64decode(await sent(*params), validate=True)
        return data, hashlib.sha256(data).hexdigest()

    return content
