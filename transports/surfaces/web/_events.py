"""Route of ``GET /events``: the activity log as server-sent events. A client has a position in the log, not a queue."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from aiohttp import web

from ...artifacts._ref import ArtifactRef, Scope
from ...protocol._strict_json import encode_json
from ..shared._activity import Activity, CallRecord, Entry, LogGap, Subject
from ._access import Visitor
from ._content import artifact_meta
from ._options import Limits
from ._responses import Metrics, RequestRefused


class _Client:
    """Client of the stream, dropped when it stalls.

    A slow write alone is not a stall: the client may be slow, or this process may have been too busy to send. A client
    has stalled if it has not taken a byte between two checks; before each check, the event loop sends all it can.
    Unsent data is bounded, both here and in the operating system.
    """

    def __init__(
        self,
        response: web.StreamResponse,
        transport: asyncio.WriteTransport,
        *,
        stall_timeout: float,
        on_stall: Callable[[], object],
    ) -> None:
        self._response = response
        self._transport = transport
        self._stall_timeout = stall_timeout
        self._on_stall = on_stall
        self._writing = False
        self._writes = 0
        self._writes_at_last_check = 0
        self._unsent_at_last_check = 0
        # aiohttp itself buffers 64 KB before it waits for the transport. The socket's buffer gets the same size.
        transport.set_write_buffer_limits(high=0)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)

    def __enter__(self) -> Self:
        self._schedule_check()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    async def write(self, data: bytes) -> None:
        self._writes += 1
        self._writing = True
        await self._response.write(data)
        self._writing = False

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stall_timeout, self._drop_if_stalled)

    def _drop_if_stalled(self) -> None:
        """End the connection if the client has taken nothing since the last check; otherwise schedule the next one."""
        unsent = self._transport.get_write_buffer_size()
        is_same_write = self._writes == self._writes_at_last_check
        has_taken_nothing = unsent == self._unsent_at_last_check
        if self._writing and is_same_write and has_taken_nothing:
            self._on_stall()
            self._transport.abort()
            return

        self._writes_at_last_check = self._writes
        self._unsent_at_last_check = unsent
        self._schedule_check()


class EventStream:
    """Event streams for at most ``max_listeners`` clients, of which one scope may have a quarter. The operator has no
    such share."""

    def __init__(self, activity: Activity, metrics: Metrics, *, max_listeners: int, limits: Limits) -> None:
        self._activity = activity
        self._metrics = metrics
        self._max_listeners = max_listeners
        self._stall_timeout = limits.stall_timeout
        self._by_scope: Counter[Scope] = Counter()
        self._listeners: set[asyncio.Task[object]] = set()
        #: Cache of the newest entries' texts, which are the same for every client.
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        metrics.listeners.set_function(lambda: len(self._listeners))

    async def listen(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Send the events of the visitor's scope, in order and each event once.

        The stream resumes after ``Last-Event-ID``. If that entry is no longer in the log, a ``reset`` event asks the
        client to load everything again. The stream ends when the client disconnects, stalls or has missed entries, and
        when the visitor's token expires."""
        if len(self._listeners) >= self._max_listeners:
            message = f"the limit of {self._max_listeners} clients of /events is reached"
            raise RequestRefused(503, "RATE_LIMITED", message)
        share = max(1, self._max_listeners // 4)
        if self._by_scope[visitor.scope] >= share and not visitor.operator:
            message = f"your limit of {share} clients of /events is reached; end one of them first"
            raise RequestRefused(429, "LIMIT_REACHED", message)

        last_seen_id, has_missed_entries = self._resume_position(request.headers.get("Last-Event-ID"))
        response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        transport = request.transport
        # The client may have disconnected already.
        if transport is None:
            return response

        task = asyncio.current_task()
        assert task is not None
        self._listeners.add(task)
        self._by_scope[visitor.scope] += 1
        try:
            await response.prepare(request)
            on_stall = self._metrics.listeners_dropped.inc
            with _Client(response, transport, stall_timeout=self._stall_timeout, on_stall=on_stall) as client:
                await self._send_events(client, visitor, last_seen_id, has_missed_entries)
        except ConnectionError:
            pass
        finally:
            self._listeners.discard(task)
            self._by_scope[visitor.scope] -= 1
            # Adding an empty counter removes counts of zero.
            self._by_scope += Counter()
        return response

    def close(self) -> None:
        for task in self._listeners:
            task.cancel()

    def _resume_position(self, last_event_id: str | None) -> tuple[int, bool]:
        """Return the id of the last entry that the client has seen, and whether later entries are no longer in the
        log."""
        if last_event_id is None:
            return self._activity.last_id, False
        is_number = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19
        if is_number and self._activity.can_resume(int(last_event_id)):
            return int(last_event_id), False
        return self._activity.last_id, True

    async def _send_events(
        self, client: _Client, visitor: Visitor, last_seen_id: int, has_missed_entries: bool
    ) -> None:
        """Send the entries after ``last_seen_id``, until the visitor's token expires or the client has missed some."""
        # Milliseconds before a client connects again.
        await client.write(b"retry: 1000\n\n")
        if has_missed_entries:
            await client.write(_encode_event(last_seen_id, "reset", {}))

        while True:
            # A client that gets nothing for so long gets a comment.
            max_wait = 15.0
            if visitor.expires_at is not None:
                max_wait = min(max_wait, visitor.expires_at - time.time())
            if max_wait <= 0:
                return
            try:
                entries = await self._activity.entries_after(last_seen_id, max_wait)
            except LogGap:
                await client.write(_encode_event(self._activity.last_id, "reset", {}))
                return

            if not entries:
                # A comment keeps the connection open, and reveals a lost client.
                await client.write(b":\n\n")
            # One write for each, since a write waits until the unsent data is below the limit. With 100 entries per
            # write, fifty clients that never read took 200 MB.
            for entry in entries:
                if visitor.scope.covers(entry.scope):
                    await client.write(self._encode_entry(entry))
                last_seen_id = entry.id

    def _encode_entry(self, entry: Entry) -> bytes:
        """Return an entry of the log as an event, from the cache if possible."""
        text = self._texts.get(entry.id)
        if text is None:
            text = _encode_event(entry.id, entry.kind, _subject_document(entry.subject))
            self._texts[entry.id] = text
            if len(self._texts) > 200:
                self._texts.popitem(last=False)
        return text


def _encode_event(event_id: int, kind: str, document: object) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: ".encode() + encode_json(document) + b"\n\n"


def _subject_document(subject: Subject) -> object:
    match subject:
        case ArtifactRef():
            return artifact_meta(subject)
        case CallRecord():
            return subject.as_dict()
    return subject
