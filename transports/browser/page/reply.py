"""Turns what the agent in the page returns into a message."""

from __future__ import annotations

import pybase64

from ...binary import BinaryData, Broken, Handle
from ...binary.detect import Place, replace
from ...errors import ProtocolError
from ...protocol.messages import Message
from ...protocol.strict_json import decode_json

__all__ = ["parse_reply"]


def parse_reply(request: Message, text: str | bytes) -> Message:
    """Return the reply to ``request`` from the agent's JSON, with content put back in its places.

    An exception of the app's ``call`` becomes a failed answer with the code ``OPERATION_FAILED``. Raises
    :class:`~transports.errors.ProtocolError` if another function of the app threw, or if the answer is cyclic or too
    deep.
    """
    parts = decode_json(text)
    assert isinstance(parts, dict)
    if "refused" in parts:
        raise ProtocolError(f"{parts['refused']}; nothing was taken from it")
    if "threw" in parts:
        if request.type != "capabilities/call":
            raise ProtocolError(f"the app's {request.type} threw {parts['name']}: {parts['threw'][:200]}")
        error = {"code": "OPERATION_FAILED", "message": f"the app threw {parts['name']}: {parts['threw'][:500]}"}
        return Message("capabilities/call-result", {"success": False, "error": error}, id=request.id)
    rest = parts["rest"]
    contents: dict[Place, object] = {
        tuple(path): _content(kind, *values) for path, kind, *values in rest.get("binaries", ())
    }
    return Message(
        f"{request.type}-result", replace(parts["answer"], contents), id=request.id, warnings=rest.get("warnings", ())
    )


def _content(
    kind: str, value: str, mime_type: str = "", name: str = "", size: int | None = None
) -> BinaryData | Broken:
    if kind == "broken":
        return Broken(value)
    if kind == "held":
        return BinaryData(Handle(f"held:{value}", size), mime_type or None, None, name or None)
    return BinaryData(pybase64.b64decode(value, validate=True), mime_type or None, None, name or None)
