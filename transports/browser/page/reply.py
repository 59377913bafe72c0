"""What the agent in the page hands over, as a message."""

from __future__ import annotations

import pybase64

from ...binary import BinaryData, Broken, Handle
from ...binary.detect import Place, replace
from ...errors import ProtocolError
from ...protocol.messages import Message
from ...protocol.strict_json import decode_json

__all__ = ["reply_to"]


def reply_to(request: Message, text: str | bytes) -> Message:
    """The agent's text as a message: content back in its place."""
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
    leaves: dict[Place, object] = {
        tuple(path): _leaf(kind, *values) for path, kind, *values in rest.get("binaries", ())
    }
    return Message(
        f"{request.type}-result", replace(parts["answer"], leaves), id=request.id, warnings=rest.get("warnings", ())
    )


def _leaf(kind: str, value: str, mime_type: str = "", name: str = "", size: int | None = None) -> BinaryData | Broken:
    if kind == "broken":
        return Broken(value)
    if kind == "held":
        return BinaryData(Handle(f"held:{value}", size), mime_type or None, None, name or None)
    return BinaryData(pybase64.b64decode(value, validate=True), mime_type or None, None, name or None)
