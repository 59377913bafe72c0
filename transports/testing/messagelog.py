"""What went over a transport, short enough to read and without secrets: for tests that fail."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from ..base import Transport
from ..binary import BinaryData
from ..errors import ABPError
from ..protocol.messages import Message
from ..protocol.redaction import REDACTED, Redactor
from ..protocol.strict_json import encode_json
from ..protocol.urls import redact_url

__all__ = ["MessageLog"]

#: Messages that are kept, the last ones; characters of a text, items of a list or object, levels of a nest.
_MESSAGES, _TEXT, _ITEMS, _LEVELS = 500, 400, 50, 12
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
#: A recording keeps the id of a session, since its replay gives it back; a log does not need it.
_REDACTOR = Redactor(fields=("sessionId",))


class MessageLog:
    """Every message of a transport, from :meth:`listen` on."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, object]] = deque(maxlen=_MESSAGES)
        self._started = time.monotonic()

    def listen(self, transport: Transport) -> None:
        """Note what goes over ``transport`` from now on. Its methods are replaced on this one object, so that whoever
        has it already is heard, too."""
        request, notify, events = transport.request, transport.notify, transport.events

        async def noted_request(message: Message, *, timeout: float) -> Message:
            self._note("→", message)
            try:
                reply = await request(message, timeout=timeout)
            except ABPError as error:
                self._add("←", {"id": message.id, "error": shortened(error.as_dict())})
                raise
            self._note("←", reply)
            return reply

        async def noted_notify(message: Message) -> None:
            self._note("→", message)
            await notify(message)

        async def noted_events() -> AsyncIterator[Message]:
            async for message in events():
                self._note("←", message)
                yield message

        transport.request = noted_request  # type: ignore[method-assign]
        transport.notify = noted_notify  # type: ignore[method-assign]
        transport.events = noted_events  # type: ignore[method-assign]

    def __len__(self) -> int:
        return len(self._entries)

    def write(self, path: Path) -> None:
        """As JSON lines ``{at (seconds), way, type, id, payload}``."""
        path.write_bytes(b"".join(encode_json(entry) + b"\n" for entry in self._entries))

    def _note(self, way: str, message: Message) -> None:
        noted: dict[str, object] = {"type": message.type, "id": message.id, "payload": shortened(message.payload)}
        if message.effects:
            noted["effects"] = [shortened(effect.as_dict()) for effect in message.effects]
        self._add(way, noted)

    def _add(self, way: str, noted: Mapping[str, object]) -> None:
        self._entries.append({"at": round(time.monotonic() - self._started, 3), "way": way, **noted})


def shortened(value: object, level: int = 0) -> object:
    """``value`` as JSON that can be read: long texts cut, content told by its size, secrets left out."""
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, BinaryData):
        return f"<{type(value.content).__name__}, {value.mime_type}, {value.size} bytes>"
    if level >= _LEVELS:
        return "…"
    if isinstance(value, Mapping):
        shown = {str(key): _member(str(key), inner, level) for key, inner in list(value.items())[:_ITEMS]}
        return shown | ({"…": len(value) - _ITEMS} if len(value) > _ITEMS else {})
    if isinstance(value, list | tuple):
        more = [f"… {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return [shortened(inner, level + 1) for inner in value[:_ITEMS]] + more
    return f"<{type(value).__name__}>"


def _member(key: str, value: object, level: int) -> object:
    return shortened(_REDACTOR.field(key, value) if _REDACTOR.is_secret(key) else value, level + 1)


def _text(text: str) -> str:
    cut = text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text)} characters)"
    return _REDACTOR.text(_URL.sub(lambda found: redact_url(found[0]) or REDACTED, cut))
