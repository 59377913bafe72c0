"""Routes of ``/apps``, ``/calls`` and ``/events``: connecting apps, making and answering calls, the log of activity."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from aiohttp import web

from ...artifacts._ref import ArtifactRef, Scope
from ...errors import UsageError
from ...protocol._capabilities import find_capability
from ...protocol._elicitation import default_answer
from ...protocol._params import set_path
from ...protocol._payloads import ElicitationRequest
from ...protocol._plain_text import is_address, plain_line
from ...protocol._strict_json import encode_json
from ...protocol._times import MAX_TIMEOUT
from ...protocol.messages import new_id
from ...routing._given_files import GivenFile, accept_files
from ...routing._result import Result
from ...session._named_apps import is_app_name
from ..shared._activity import CallRecord, LogGap, Subject, call_record
from ..shared._apps import App, run_as_pending
from ..shared._detached import DetachedCalls
from ._access import Visitor
from ._parts import Parts
from ._responses import (
    RequestRefused,
    artifact_meta,
    json_response,
    read_json,
    scope_in,
    seconds_in,
    whole_number,
)
from ._views import ViewRoutes


class AppRoutes:
    def __init__(self, parts: Parts) -> None:
        self._activity = parts.activity
        self._apps = parts.apps
        self._named = sorted(parts.named)

    async def list(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        """List the connected apps, oldest first. The operator also gets the names of apps in the settings file."""
        visible = [app for app in self._activity.apps.values() if visitor.scope.covers(app.scope)]
        names = self._named if visitor.operator else []
        return json_response({"apps": [_app_document(app) for app in visible], "names": names})

    async def connect(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Connect an app, perhaps for another ``tenant`` or ``user``. With ``reuse``, an app that is already connected
        may be returned, also to other visitors; only the operator may connect a new one."""
        body = await read_json(request)
        may_reuse = body.get("reuse") is True
        if not may_reuse:
            visitor.require_operator()
        match body.get("url"), body.get("transport", "auto"):
            case str(url), str(transport) if is_address(url) or is_app_name(url):
                pass
            case _:
                message = "url must be an http(s):// or ws(s):// address or the name of an app, and transport a name"
                raise RequestRefused(400, "INVALID_PARAMS", message)

        owner = scope_in(body, "tenant", "user")
        if may_reuse:
            connected_app = self._find_reusable(visitor, owner, url, transport)
            if connected_app is not None:
                return json_response(_app_document(connected_app))
            visitor.require_operator()

        app = await self._apps.connect(url, {"transport": transport}, owner=owner)
        return json_response(_app_document(app), status=201)

    def _find_reusable(self, visitor: Visitor, owner: Scope, url: str, transport: str) -> App | None:
        """Return a connected app that the visitor may use, or ``None``. The operator sees the apps of all users, but
        may use only those that this server has connected for ``owner``."""
        owner_scope = self._apps.scope.within(owner)
        for app in self._activity.apps.values():
            may_use = visitor.scope.covers(app.scope)
            if visitor.operator:
                is_of_owner = app.scope.tenant == owner_scope.tenant and app.scope.user == owner_scope.user
                may_use = app.apps is self._apps and is_of_owner
            if may_use and app.target == url and transport in ("auto", app.session.transport.name):
                return app
        return None

    async def disconnect(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        app = self.find(request, visitor)
        await app.apps.disconnect(app)
        return web.Response(status=204)

    async def capability(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        session = self.find(request, visitor).session
        name = request.match_info["name"]
        declaration = find_capability(session.info.name, name, session.capabilities)
        return json_response(declaration.model_dump(by_alias=True))

    def find(self, request: web.Request, visitor: Visitor) -> App:
        """Return the app of the session in the path. Raises :class:`~._responses.RequestRefused` (404) if the visitor
        sees no such app."""
        app = self._activity.apps.get(request.match_info["session"])
        if app is None or not visitor.scope.covers(app.scope):
            raise RequestRefused(404, "SESSION_INVALID", "unknown session; the app may have been disconnected")
        return app


def _app_document(app: App) -> dict[str, object]:
    """Describe an app, with at most 1,000 capabilities, since an app may have far more (docs/faults.md 22)."""
    session = app.session
    capabilities = [session.capabilities[name] for name in islice(session.capabilities, 1000)]
    return {
        "session": app.key,
        "url": app.shown_target,
        "signed_in_as": app.scope.user if app.is_named else None,
        "name": plain_line(session.info.name),
        "version": plain_line(session.info.version),
        "transport": session.transport.name,
        "resources": session.resources.available,
        "capabilities": [
            {
                "name": capability.name,
                "description": plain_line(capability.description, 500),
                "available": capability.available,
                "experimental": capability.experimental,
                "deprecated": capability.deprecated,
                "view": capability.view,
            }
            for capability in capabilities
        ],
    }


class _WebCall:
    """A call that was made over HTTP. It is a :class:`~transports.surfaces.shared._apps.PendingCall`."""

    def __init__(self, key: str, calls: DetachedCalls, question_timeout: float) -> None:
        self.key = key
        self._calls = calls
        self._question_timeout = question_timeout
        self._answer: asyncio.Future[Mapping[str, object]] | None = None

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Wait until a client answers a question of the app. After the timeout, return the default answer."""
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._calls.question_changed(self.key, request)

        try:
            async with asyncio.timeout(self._question_timeout):
                return await answer
        except TimeoutError:
            return default_answer(request)
        finally:
            # Another question of the app may have replaced this one.
            if self._answer is answer:
                self._answer = None
            self._calls.question_changed(self.key, None)

    def answer(self, content: Mapping[str, object]) -> bool:
        """Answer the open question. Return ``False`` if no question is open."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(content)
        return True

    async def aclose(self) -> None:
        with suppress(UsageError):  # the call has ended already
            await self._calls.cancel(self.key, Scope())


class CallRoutes:
    def __init__(self, parts: Parts, apps: AppRoutes, views: ViewRoutes) -> None:
        self._parts = parts
        self._activity = parts.activity
        self._calls = parts.calls
        self._apps = apps
        self._views = views

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        session = request.query.get("session")
        limit = whole_number(request.query.get("limit", "100"))
        if limit is None:
            raise RequestRefused(400, "INVALID_PARAMS", "limit must be a whole number")

        newest_first = reversed(self._activity.calls.values())
        records = [record for record in newest_first if visitor.scope.covers(record.scope)]
        if session:
            records = [record for record in records if record.session == session]
        return json_response({"calls": [record.as_dict() for record in records[:limit]]})

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Describe a call, with its result. Wait up to ``wait`` seconds (60 at most) for its end."""
        call_id = request.match_info["id"]
        wait_seconds = whole_number(request.query.get("wait", "0"))
        if wait_seconds is None:
            raise RequestRefused(400, "INVALID_PARAMS", "wait must be a whole number of seconds")

        record = self._activity.calls.get(call_id)
        result = None
        if record is None or record.detached:
            kept_call = await self._calls.get(call_id, visitor.scope, wait=min(wait_seconds, 60))
            record = self._activity.calls.get(call_id, kept_call.record)
            result = kept_call.answer
        if not visitor.scope.covers(record.scope):
            raise RequestRefused(404, "CALL_NOT_FOUND", "unknown call; it may have expired")

        # The result is JSON already, and may be long, so it is inserted as it is.
        result = result or self._activity.result(call_id) or b"null"
        body = encode_json(record.as_dict())[:-1] + b',"result":' + result + b"}"
        return web.Response(body=body, content_type="application/json")

    async def cancel(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Cancel a detached call; other calls cannot be cancelled here. A call that has ended stays unchanged."""
        call_id = request.match_info["id"]
        record = self._activity.calls.get(call_id)
        if record is not None and not record.detached and visitor.scope.covers(record.scope):
            has_ended = record.duration_ms is not None
            if not has_ended:
                message = "this call was made by another program, and only that program can cancel it"
                raise RequestRefused(409, "NOT_SUPPORTED", message)
            return json_response(record.as_dict(), status=202)

        kept_call = await self._calls.cancel(call_id, visitor.scope)
        return json_response(self._activity.calls.get(call_id, kept_call.record).as_dict(), status=202)

    async def answer(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        call_id = request.match_info["id"]
        body = await read_json(request)
        if not isinstance(body.get("success"), bool):
            message = "an answer must be {success: true, data: {…}} or {success: false}"
            raise RequestRefused(400, "INVALID_PARAMS", message)

        live = self._calls.find_live(call_id, visitor.scope)
        if live is None:
            # This raises for an unknown call. Any other call has ended or runs elsewhere, and has no question here.
            await self._calls.get(call_id, visitor.scope)
        elif isinstance(live.pending, _WebCall):
            answer: dict[str, object] = {"success": False, "cancelled": True}
            if body["success"]:
                answer = {"success": True, "data": body.get("data", {})}
            if live.pending.answer(answer):
                return web.Response(status=204)
        raise RequestRefused(409, "INVALID_PARAMS", "this call has no open question")

    async def start(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Start a call. Its end is reported as an event. With ``view``, its view is kept for ``GET /views/{id}``."""
        app = self._apps.find(request, visitor)
        body = await read_json(request)
        capability = body.get("capability")
        params = body.get("params", {})
        if not isinstance(capability, str) or not isinstance(params, dict):
            raise RequestRefused(400, "INVALID_PARAMS", "a call must be {capability, params: {…}, files?, timeout?}")
        declaration = find_capability(app.session.info.name, capability, app.session.capabilities)
        view = declaration.view if body.get("view") is True else None
        timeout = None
        if body.get("timeout") is not None:
            timeout = seconds_in(body, "timeout", 0.0, MAX_TIMEOUT)

        await self._fill_in_files(params, body.get("files", []), visitor, capability)

        call = _WebCall(new_id(), self._calls, self._parts.options.question_timeout)
        record = replace(call_record(app, call.key, capability, detached=True), view=view)

        def call_app(_: _WebCall) -> Coroutine[object, object, Result]:
            if view is not None:
                return self._views.call(app, capability, params, timeout, call.key)
            return app.session.call(capability, params, timeout=timeout, call_id=call.key)

        await self._calls.start(record, call, run_as_pending(app.pending_calls, call, call_app))
        return json_response(record.as_dict(), status=202)

    async def _fill_in_files(self, params: dict[str, object], files: object, visitor: Visitor, capability: str) -> None:
        """Add files to the parameters. Each of ``files`` is ``{"param": …, "artifact": ID}``; ``param`` is the path of
        the parameter, such as ``a.b``."""
        references: dict[str, GivenFile] = {}
        for file in files if isinstance(files, list) else [files]:
            match file:
                case {"param": str(param), "artifact": str(artifact)}:
                    references[param] = {"id": artifact}
                case _:
                    message = "files must be [{param, artifact}] with uploaded artifacts"
                    raise RequestRefused(400, "INVALID_PARAMS", message)
        accepted_files = await accept_files(references, store=self._parts.store_of(visitor), capability=capability)
        for param, content in accepted_files.items():
            set_path(params, param.split("."), content.binary)


class EventStream:
    """Sends events to the clients of ``/events``, at most ``max_listeners``. The clients of one scope may be a quarter
    of them; for the operator only the whole limit counts."""

    def __init__(self, parts: Parts) -> None:
        self._activity = parts.activity
        self._metrics = parts.metrics
        self._max_listeners = parts.options.max_listeners
        self._stall_timeout = parts.limits.stall_timeout
        #: Tasks of the requests, with the scope of each visitor.
        self._listeners: dict[asyncio.Task[object], Scope] = {}
        parts.metrics.listeners.set_function(lambda: len(self._listeners))

    async def listen(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Send each event of the visitor's scope once, in order, after ``Last-Event-ID``. If that entry is no longer in
        the log, a ``reset`` event asks the client to load everything again. The stream ends when the client
        disconnects, stalls or has missed entries, and when the visitor's token expires."""
        self._refuse_beyond_limits(visitor)
        last_seen_id, has_missed_entries = self._resume_position(request.headers.get("Last-Event-ID"))
        response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        transport = request.transport
        if transport is None:
            # The client has disconnected already.
            return response
        _limit_unsent(transport)

        async def write(data: bytes) -> None:
            async with asyncio.timeout(self._stall_timeout):
                await response.write(data)

        task = asyncio.current_task()
        assert task is not None
        self._listeners[task] = visitor.scope
        try:
            await response.prepare(request)
            await self._send_events(write, visitor, last_seen_id, has_missed_entries)
        except TimeoutError:
            self._metrics.listeners_dropped.inc()
            transport.abort()
        except ConnectionError:
            pass
        finally:
            del self._listeners[task]
        return response

    def _refuse_beyond_limits(self, visitor: Visitor) -> None:
        if len(self._listeners) >= self._max_listeners:
            message = f"the limit of {self._max_listeners} clients of /events is reached"
            raise RequestRefused(503, "RATE_LIMITED", message)
        share = max(1, self._max_listeners // 4)
        of_visitor = sum(1 for scope in self._listeners.values() if scope == visitor.scope)
        if of_visitor >= share and not visitor.operator:
            message = f"your limit of {share} clients of /events is reached; end one of them first"
            raise RequestRefused(429, "LIMIT_REACHED", message)

    def close(self) -> None:
        for task in self._listeners:
            task.cancel()

    def _resume_position(self, last_event_id: str | None) -> tuple[int, bool]:
        """Return the id of the last entry that the client has seen, and whether later ones have gone from the log."""
        if last_event_id is None:
            return self._activity.last_id, False
        max_digits = 18  # fewer than 64 bits can have
        is_number = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= max_digits
        if is_number and self._activity.has_all_entries_after(int(last_event_id)):
            return int(last_event_id), False
        return self._activity.last_id, True

    async def _send_events(
        self,
        write: Callable[[bytes], Awaitable[None]],
        visitor: Visitor,
        last_seen_id: int,
        has_missed_entries: bool,
    ) -> None:
        """Send events until the visitor's token has expired or the client has missed entries."""
        # Milliseconds before a client connects again.
        await write(b"retry: 1000\n\n")
        if has_missed_entries:
            await write(_encode_event(last_seen_id, "reset", {}))

        while True:
            max_wait = 15.0
            if visitor.expires_at is not None:
                max_wait = min(max_wait, visitor.expires_at - time.time())
                is_expired = max_wait <= 0
                if is_expired:
                    return
            try:
                entries = await self._activity.entries_after(last_seen_id, max_wait)
            except LogGap:
                await write(_encode_event(self._activity.last_id, "reset", {}))
                return

            if not entries:
                # A comment keeps the connection open, and reveals a lost client.
                await write(b":\n\n")
            # Each entry is a separate write, which waits until little is unsent. With 100 entries in a write, fifty
            # clients that never read took 200 MB.
            for entry in entries:
                if visitor.scope.covers(entry.scope):
                    await write(_encode_event(entry.id, entry.kind, _subject_document(entry.subject)))
                last_seen_id = entry.id


def _limit_unsent(transport: asyncio.WriteTransport) -> None:
    """Limit what is buffered for a client that does not read to about 64 KB, as much as aiohttp buffers before it
    waits."""
    transport.set_write_buffer_limits(high=0)
    with suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)


def _encode_event(event_id: int, kind: str, document: object) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: ".encode() + encode_json(document) + b"\n\n"


def _subject_document(subject: Subject) -> object:
    match subject:
        case ArtifactRef():
            return artifact_meta(subject)
        case CallRecord():
            return subject.as_dict()
    return subject
