"""``GET /events``: what happens, as server-sent events. A client is a place in the log and no queue of its own."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from ...artifacts import ArtifactRef
from ...protocol.strict_json import encode_json
from ..shared.activity import Activity, Behind, CallRecord, Entry
from .access import Visitor
from .answers import Refused
from .documents import meta_of
from .metrics import Metrics

__all__ = ["Events"]

#: Seconds between two comment lines, which keep a connection open and find those who are gone.
_HEARTBEAT = 15.0
#: After so many milliseconds a client that lost its connection comes back.
_RETRY = b"retry: 1000\n\n"
#: Seconds for a client to take what it is sent, and bytes that may wait for it, here and in the system.
_PATIENCE, _WAITING = 10.0, 64 << 10
#: Entries that are kept as text.
_TEXTS = 200


class Events:
    """All that listen to one log."""

    def __init__(self, activity: Activity, metrics: Metrics, *, most: int) -> None:
        self._activity = activity
        self._metrics = metrics
        self._most = most
        self._listening: set[asyncio.Task[object]] = set()
        #: Texts of the newest entries: they are the same for all.
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        metrics.gauge("abp_listeners", lambda: {(): len(self._listening)})

    async def listen(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Until the client goes away, does not read, or must load everything again."""
        if len(self._listening) >= self._most:
            raise Refused(503, "RATE_LIMITED", f"{self._most} clients listen already, which is the limit")
        after, missed = self._place(request.headers.get("Last-Event-ID"))
        answer = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        answer.content_type = "text/event-stream"
        answer.charset = "utf-8"
        task = asyncio.current_task()
        assert task is not None
        self._listening.add(task)
        try:
            await answer.prepare(request)
            _bound(request.transport)
            await self._follow(answer, visitor, after, missed)
        except TimeoutError:
            self._metrics.count("abp_listeners_dropped_total")
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self._listening.discard(task)
        return answer

    def close(self) -> None:
        """End all of them."""
        for task in self._listening:
            task.cancel()

    def _place(self, last: str | None) -> tuple[int, bool]:
        """Where to go on, and whether something was missed."""
        if last is None:
            return self._activity.last, False
        place = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else -1
        return (place, False) if self._activity.holds(place) else (self._activity.last, True)

    async def _follow(self, answer: web.StreamResponse, visitor: Visitor, place: int, missed: bool) -> None:
        await _write(answer, _RETRY + (_event(place, "reset", {}) if missed else b""))
        while True:
            left = _HEARTBEAT if visitor.until is None else min(_HEARTBEAT, visitor.until - time.time())
            if left <= 0:
                return
            try:
                entries = await self._activity.after(place, left)
            except Behind:
                await _write(answer, _event(self._activity.last, "reset", {}))
                return
            if not entries:
                await _write(answer, b":\n\n")
            for entry in entries:  # one by one: what a client has not taken yet is bounded before the next
                if visitor.scope.covers(entry.scope):
                    await _write(answer, self._text(entry))
                place = entry.id

    def _text(self, entry: Entry) -> bytes:
        text = self._texts.get(entry.id)
        if text is None:
            text = self._texts[entry.id] = _event(entry.id, entry.kind, _document(entry.about))
            if len(self._texts) > _TEXTS:
                self._texts.popitem(last=False)
        return text


async def _write(answer: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_PATIENCE):
        await answer.write(data)


def _event(number: int, kind: str, document: object) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: ".encode() + encode_json(document) + b"\n\n"


def _document(about: ArtifactRef | CallRecord | Mapping[str, object]) -> object:
    match about:
        case ArtifactRef():
            return meta_of(about)
        case CallRecord():
            return about.as_dict()
    return about


def _bound(transport: asyncio.WriteTransport | None) -> None:
    """What waits for a client that does not read is bounded here and in the system."""
    if transport is not None:
        transport.set_write_buffer_limits(high=_WAITING)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING)
