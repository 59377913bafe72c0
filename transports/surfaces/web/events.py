"""``GET /events``: the activity log as server-sent events. A client has a position in the log, and no queue."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from contextlib import suppress

from aiohttp import web

from ...artifacts import ArtifactRef
from ...protocol.messages import encode_json
from ..shared.activity import Activity, Entry, LogGap, Subject
from ..shared.call_record import CallRecord
from .access import Visitor
from .artifact_meta import artifact_meta
from .metrics import Metrics
from .responses import RequestRefused

__all__ = ["EventStream"]

#: Seconds between two comment lines, which keep a connection open and reveal clients that are gone.
_HEARTBEAT = 15.0
#: Milliseconds after which a client that lost its connection comes back.
_RETRY = b"retry: 1000\n\n"
#: Seconds for a client to take what it is sent.
_WRITE_TIMEOUT = 10.0
#: Bytes that may wait for a client: in this process, and as much again in the operating system.
_MAX_UNSENT = 64 << 10
#: Entries that are kept as text.
_MAX_TEXTS = 200


class EventStream:
    """Handler of ``GET /events`` for at most ``max_listeners`` clients at a time."""

    def __init__(self, activity: Activity, metrics: Metrics, *, max_listeners: int) -> None:
        self._activity = activity
        self._metrics = metrics
        self._max_listeners = max_listeners
        self._listeners: set[asyncio.Task[object]] = set()
        #: Texts of the newest entries, which are the same for every client.
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        metrics.listeners.set_function(lambda: len(self._listeners))

    async def listen(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Send what happens within the visitor's scope, in order and each event once.

        The stream goes on after ``Last-Event-ID``; where that is no longer known, ``reset`` tells the client to load
        everything again. It ends when the client goes away, has not read for ten seconds, or has missed entries, and
        with the visitor's token."""
        if len(self._listeners) >= self._max_listeners:
            message = f"{self._max_listeners} clients listen already, which is the limit"
            raise RequestRefused(503, "RATE_LIMITED", message)
        position, missed = self._position(request.headers.get("Last-Event-ID"))
        response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        task = asyncio.current_task()
        assert task is not None
        self._listeners.add(task)
        try:
            await response.prepare(request)
            _limit_buffers(request.transport)
            await self._follow(response, visitor, position, missed)
        except TimeoutError:
            self._metrics.listeners_dropped.inc()
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self._listeners.discard(task)
        return response

    def close(self) -> None:
        """End all streams."""
        for task in self._listeners:
            task.cancel()

    def _position(self, last_event_id: str | None) -> tuple[int, bool]:
        """The id to go on after, and whether the client has missed something."""
        if last_event_id is None:
            return self._activity.last_id, False
        known = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19
        position = int(last_event_id) if known else -1
        return (position, False) if self._activity.can_resume(position) else (self._activity.last_id, True)

    async def _follow(self, response: web.StreamResponse, visitor: Visitor, position: int, missed: bool) -> None:
        await _write(response, _RETRY + (_event(position, "reset", {}) if missed else b""))
        while True:
            remaining = _HEARTBEAT
            if visitor.expires_at is not None:
                remaining = min(_HEARTBEAT, visitor.expires_at - time.time())
            if remaining <= 0:
                return
            try:
                entries = await self._activity.entries_after(position, remaining)
            except LogGap:
                await _write(response, _event(self._activity.last_id, "reset", {}))
                return
            if not entries:
                await _write(response, b":\n\n")
            for entry in entries:  # one by one: what a client has not taken yet is bounded before the next
                if visitor.scope.covers(entry.scope):
                    await _write(response, self._text(entry))
                position = entry.id

    def _text(self, entry: Entry) -> bytes:
        text = self._texts.get(entry.id)
        if text is None:
            text = self._texts[entry.id] = _event(entry.id, entry.kind, _document(entry.subject))
            if len(self._texts) > _MAX_TEXTS:
                self._texts.popitem(last=False)
        return text


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_WRITE_TIMEOUT):
        await response.write(data)


def _event(number: int, kind: str, document: object) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: ".encode() + encode_json(document) + b"\n\n"


def _document(subject: Subject) -> object:
    match subject:
        case ArtifactRef():
            return artifact_meta(subject)
        case CallRecord():
            return subject.as_dict()
    return subject


def _limit_buffers(transport: asyncio.WriteTransport | None) -> None:
    """Bound what waits for a client that does not read."""
    if transport is not None:
        transport.set_write_buffer_limits(high=_MAX_UNSENT)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_UNSENT)
