"""``wire.*``: replies that go wrong on the wire, each in one known way. Their data is {fault, value?, file?}.

All take ``value`` (answered as it is) and ``bytes`` (the size of ``data.file``, a generated file).
"""

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from webapp_fixture.binarydata import wrap
from webapp_fixture.frames import BINARY, COMPRESSED, TEXT, Pipe, envelope, header, to_json
from webapp_fixture.generate import generate

Json = dict[str, Any]
MEGABYTE = 1 << 20
DRIBBLE = 1024
DEEP = 100_000
LATE = 0.3  # seconds after the timeout of the call


@dataclass(frozen=True, slots=True)
class Reply:
    """A call and the data that would answer it."""

    message_id: Any
    params: Json
    options: Json
    data: Json

    def message(self, **more: Any) -> Json:
        """Return the reply as a message; ``more`` is added to the envelope."""
        payload = {"success": True, "data": self.data, "metadata": {"duration": 0}}
        return {**envelope("capabilities/call-result", self.message_id, payload=payload), **more}

    def text(self) -> bytes:
        """Return the reply as JSON in UTF-8."""
        return to_json(self.message()).encode()

    def hand_made(self, value: str) -> bytes:
        """Return a reply whose ``data.value`` is ``value`` as it stands, JSON or not."""
        start = envelope("capabilities/call-result", self.message_id)
        return f'{to_json(start)[:-1]},"payload":{{"success":true,"data":{{"value":{value}}}}}}}'.encode()


def make_reply(name: str, message_id: Any, params: Json, options: Json) -> Reply:
    """Return the reply that a call would get if nothing went wrong."""
    data: Json = {"fault": name.removeprefix("wire.")}
    if "value" in params:
        data["value"] = params["value"]
    size = params.get("bytes", 65536 if name in ("wire.cut", "wire.slow") else None)
    if size is not None:
        data["file"] = wrap(b"".join(generate(int(size))), filename="generated.bin")
    return Reply(message_id, params, options, data)


async def cut(pipe: Pipe, reply: Reply) -> None:
    """TCP ends in the middle of the reply's frame."""
    text = reply.text()
    await pipe.pieces([header(TEXT, len(text)), text[: len(text) // 2]])
    pipe.drop(at_once=False)


async def silent(pipe: Pipe, reply: Reply) -> None:
    """From now on nothing is read and nothing is written, no pongs either; after ``seconds`` the connection drops."""
    pipe.silent = True
    pipe.transport.pause_reading()
    await asyncio.sleep(reply.params.get("seconds", 30))
    pipe.drop()


async def slow(pipe: Pipe, reply: Reply) -> None:
    """The reply's frame, 1 KB every ``ms`` milliseconds; other frames wait for its end."""
    text = reply.text()
    frame = header(TEXT, len(text)) + text
    pieces = [frame[start : start + DRIBBLE] for start in range(0, len(frame), DRIBBLE)]
    await pipe.pieces(pieces, delay=reply.params.get("ms", 20) / 1000)


async def duplicate(pipe: Pipe, reply: Reply) -> None:
    """The reply, twice; only the first has ``data.first`` true."""
    for first in (True, False):
        reply.data["first"] = first
        await pipe.message(reply.message())


async def foreign(pipe: Pipe, reply: Reply) -> None:
    """Before the reply, one with an id that nobody asked with."""
    stray = Reply("nobody-asked-this", {}, {}, {"fault": "foreign", "stray": True})
    await pipe.message(stray.message())
    await pipe.message(reply.message())


async def late(pipe: Pipe, reply: Reply) -> None:
    """The reply, 0.3 s after the call's timeout, whether it was cancelled or not."""
    await asyncio.sleep(reply.options.get("timeout", 0) / 1000 + LATE)
    await pipe.message(reply.message())


async def unknown_type(pipe: Pipe, reply: Reply) -> None:
    """A message of a type that does not exist, then the reply with fields that do not exist."""
    await pipe.message(envelope("workbench/weather", reply.message_id, payload={"sky": "clear"}, mood="sunny"))
    await pipe.message(reply.message(mood="sunny", priority=7))


async def invalid_utf8(pipe: Pipe, _reply: Reply) -> None:
    """A text frame that is not UTF-8; no reply."""
    await pipe.pieces([b"\x81\x02\xff\xfe"])


async def bad_json(pipe: Pipe, reply: Reply) -> None:
    """A text frame that is not the JSON it should be, with the call's id where it can be; no reply."""
    values = {
        "nan": "NaN",
        "huge_number": "1e999",
        "long_int": "7" * 5000,
        "surrogate": r'"a\ud834b"',
        "deep": "[" * DEEP + "]" * DEEP,
    }
    kind = reply.params.get("kind", "junk")
    if kind == "junk":
        text = reply.text()[:-10] + b"{oops"
    else:
        text = reply.hand_made(values[kind])
    await pipe.frame(TEXT, text)


async def huge(pipe: Pipe, reply: Reply) -> None:
    """The reply, in one text frame of at least so many megabytes."""
    reply.data["filler"] = "x" * round(reply.params.get("megabytes", 2) * MEGABYTE)
    await pipe.message(reply.message())


async def deflate_bomb(pipe: Pipe, reply: Reply) -> None:
    """The reply with ``megabytes`` of zeros, deflated (RSV1), whether or not that was agreed on."""
    packer = zlib.compressobj(wbits=-15)
    before, after = reply.hand_made('"0"').split(b'"0"')
    parts = [packer.compress(before + b'"')]
    for _each in range(round(reply.params.get("megabytes", 200))):
        parts.append(packer.compress(b"0" * MEGABYTE))
        await asyncio.sleep(0)
    packed = b"".join([*parts, packer.compress(b'"' + after), packer.flush(zlib.Z_SYNC_FLUSH)])
    await pipe.frame(TEXT, packed.removesuffix(b"\x00\x00\xff\xff"), COMPRESSED)


async def binary_frame(pipe: Pipe, reply: Reply) -> None:
    """The reply, in a binary frame."""
    await pipe.frame(BINARY, reply.text())


async def close(pipe: Pipe, reply: Reply) -> None:
    """A close frame with that code (any; 1005: none) and reason, instead of the reply."""
    await pipe.close_frame(int(reply.params.get("code", 1011)), reply.params.get("reason", "on purpose"))


async def no_close(pipe: Pipe, _reply: Reply) -> None:
    """TCP ends without a close frame."""
    pipe.drop()


async def untimed(pipe: Pipe, reply: Reply) -> None:
    """The reply, without a timestamp."""
    message = reply.message()
    del message["timestamp"]
    await pipe.message(message)


Fault = Callable[[Pipe, Reply], Coroutine[Any, Any, None]]
FAULTS: dict[str, Fault] = {
    f"wire.{fault.__name__}": fault
    for fault in (
        *(cut, silent, slow, duplicate, foreign, late, unknown_type, invalid_utf8),
        *(bad_json, huge, deflate_bomb, binary_frame, close, no_close, untimed),
    )
}

_NUMBER = {"type": "number", "minimum": 0}
_PARAMS: dict[str, Json] = {
    "wire.silent": {"seconds": {**_NUMBER, "description": "Until the connection drops (default 30)"}},
    "wire.slow": {"ms": {**_NUMBER, "description": "Milliseconds before each KB (default 20)"}},
    "wire.bad_json": {
        "kind": {
            "type": "string",
            "description": "What is wrong (default junk)",
            "enum": ["junk", "nan", "huge_number", "long_int", "surrogate", "deep"],
        }
    },
    "wire.huge": {"megabytes": {**_NUMBER, "maximum": 512, "description": "Default 2"}},
    "wire.deflate_bomb": {"megabytes": {**_NUMBER, "maximum": 2048, "description": "Unpacked (default 200)"}},
    "wire.close": {
        "code": {"type": "integer", "minimum": 0, "maximum": 65535, "description": "Default 1011"},
        "reason": {"type": "string", "description": "Default: on purpose"},
    },
}
_COMMON = {
    "value": {"description": "Answered as it is"},
    "bytes": {"type": "integer", "minimum": 0, "maximum": 1 << 28, "description": "Size of data.file"},
}

_FILE = {"type": "object", "properties": {"mimeType": {"type": "string"}}, "required": ["mimeType"]}
_ANSWER = {"type": "object", "properties": {"file": _FILE}}
_REST: Json = {"outputSchema": _ANSWER, "features": {}, "available": True, "requirements": []}


def definitions() -> list[Json]:
    """Return the definitions of the ``wire.*`` capabilities."""
    entries = []
    for name, fault in FAULTS.items():
        schema = {"type": "object", "properties": {**_PARAMS.get(name, {}), **_COMMON}}
        entries.append({"name": name, "description": (fault.__doc__ or "").strip(), "inputSchema": schema, **_REST})
    return entries
