"""``/calls`` and ``/apps/{session}/calls``: look at all calls; make, answer and cancel some."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import cast

from aiohttp import web

from ...binary.params import set_path
from ...errors import ABPError, CapabilityError
from ...protocol.capabilities import unknown_capability
from ...protocol.elicitation import default_answer
from ...protocol.payloads import ElicitationRequest
from ...protocol.strict_json import encode_json
from ...routing import GivenFile, accept_files
from ...session.events import CallFinished
from ..shared.activity import Activity
from ..shared.apps import App
from ..shared.call_record import CallRecord
from .access import Visitor
from .apps import AppRoutes
from .artifacts import ArtifactRoutes, seconds_in
from .responses import RequestRefused, json_response, read_json

__all__ = ["CallRoutes"]

#: Calls made here that may run in one app at a time.
_MAX_PER_APP = 32
#: Calls in one list.
_PAGE = 100
#: Seconds for a cancelled call to end.
_CLOSE_TIMEOUT = 5.0


class _WebCall:
    """A call that was made here; a :class:`~transports.surfaces.shared.apps.PendingCall`."""

    def __init__(self, key: str, activity: Activity, question_timeout: float) -> None:
        self.key = key
        self.task: asyncio.Task[None]
        self._activity = activity
        self._question_timeout = question_timeout
        self._answer: asyncio.Future[Mapping[str, object]] | None = None

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Wait for an answer over HTTP; after the time limit, the default answer of every session."""
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._activity.question_changed(self.key, request)
        try:
            return await asyncio.wait_for(answer, self._question_timeout)
        except TimeoutError:
            return default_answer(request)
        finally:
            if self._answer is answer:
                self._answer = None
            self._activity.question_changed(self.key, None)

    def answer(self, given: Mapping[str, object]) -> bool:
        """Answer the open question; ``False`` without one."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(given)
        return True

    async def aclose(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,), timeout=_CLOSE_TIMEOUT)


class CallRoutes:
    """Handlers for the calls of one server. ``question_timeout`` is in seconds."""

    def __init__(
        self, activity: Activity, apps: AppRoutes, artifacts: ArtifactRoutes, *, question_timeout: float
    ) -> None:
        self._activity = activity
        self._apps = apps
        self._artifacts = artifacts
        self._question_timeout = question_timeout
        self._calls: dict[str, _WebCall] = {}

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /calls``, newest first."""
        session, limit = request.query.get("session"), request.query.get("limit", str(_PAGE))
        if not (limit.isascii() and limit.isdigit() and 0 < len(limit) < 9):
            raise RequestRefused(400, "INVALID_PARAMS", "limit must be a whole number")
        found = [
            record.as_dict()
            for record in reversed(self._activity.calls.values())
            if visitor.scope.covers(record.scope) and session in (None, "", record.session)
        ]
        return json_response({"calls": found[: int(limit)]})

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /calls/{id}`` with the record and the result of a call."""
        record = self._record(request, visitor)
        result = self._activity.result(record.id) or b"null"  # JSON already, and it may be long
        body = encode_json(record.as_dict())[:-1] + b',"result":' + result + b"}"
        return web.Response(body=body, content_type="application/json")

    async def cancel(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``DELETE /calls/{id}`` for a call that was made here. A call that has ended stays as it is."""
        record = self._record(request, visitor)
        if record.duration_ms is None:
            self._call_made_here(record).task.cancel()
        return json_response(record.as_dict(), status=202)

    async def answer(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``POST /calls/{id}/answer``: pass the body on to the app as the answer to its question."""
        record = self._record(request, visitor)
        body = await read_json(request)
        if not isinstance(body.get("success"), bool):
            message = "an answer is {success: true, data: {…}} or {success: false}"
            raise RequestRefused(400, "INVALID_PARAMS", message)
        if record.status != "asking" or not self._call_made_here(record).answer(_elicitation_answer(body)):
            raise RequestRefused(409, "INVALID_PARAMS", "this call has no open question")
        return web.Response(status=204)

    async def make(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``POST /apps/{session}/calls`` as soon as the call has started; its end is an event."""
        app = self._apps.find(request, visitor).app
        body = await read_json(request)
        capability, params = body.get("capability"), body.get("params", {})
        if not isinstance(capability, str) or not isinstance(params, dict):
            raise RequestRefused(400, "INVALID_PARAMS", "a call is {capability, params: {…}, files?, timeout?}")
        known = app.session.capabilities
        if capability not in known:
            raise unknown_capability(app.session.info.name, capability, known)
        timeout = seconds_in(body, "timeout", 0.0) if body.get("timeout") is not None else None
        if sum(isinstance(one, _WebCall) for one in app.pending_calls) >= _MAX_PER_APP:
            raise RequestRefused(429, "RATE_LIMITED", f"{_MAX_PER_APP} calls of this app run already")
        await self._fill_in_files(params, body.get("files", []), visitor, capability)
        call = _WebCall(str(uuid.uuid4()), self._activity, self._question_timeout)
        record = self._activity.call_started(app, call.key, capability)
        self._calls[call.key] = call
        app.pending_calls.append(call)
        call.task = asyncio.ensure_future(self._run(call, app, capability, params, timeout))
        return json_response(record.as_dict(), status=202)

    async def aclose(self) -> None:
        """Cancel all calls that were made here."""
        await asyncio.gather(*(call.aclose() for call in tuple(self._calls.values())))

    async def _run(
        self, call: _WebCall, app: App, capability: str, params: Mapping[str, object], timeout: float | None
    ) -> None:
        result, error, started = None, None, time.perf_counter()
        try:
            result = await app.session.call(capability, params, timeout=timeout, call_id=call.key)
        except ABPError as raised:
            error = raised
        finally:
            app.pending_calls.remove(call)
            del self._calls[call.key]
            if result is None and error is None:
                error = CapabilityError(f"{capability}: cancelled", code="CANCELLED")
            # the session reports the end too, except where it had closed before
            duration = (time.perf_counter() - started) * 1000
            self._activity.call_finished(CallFinished(call.key, capability, duration, result, error))

    async def _fill_in_files(self, params: dict[str, object], files: object, visitor: Visitor, capability: str) -> None:
        given: dict[str, GivenFile] = {}
        for file in files if isinstance(files, list) else [files]:
            match file:
                case {"param": str(param), "artifact": str(artifact)}:
                    given[param] = {"id": artifact}
                case _:
                    raise RequestRefused(400, "INVALID_PARAMS", "files are [{param, artifact}]: upload them first")
        accepted = await accept_files(cast("Mapping[str, GivenFile]", given), store=self._artifacts.view(visitor),
                                      capability=capability)  # fmt: skip
        for param, one in accepted.items():
            set_path(params, param.split("."), one.binary)

    def _record(self, request: web.Request, visitor: Visitor) -> CallRecord:
        record = self._activity.calls.get(request.match_info["id"])
        if record is None or not visitor.scope.covers(record.scope):
            raise RequestRefused(404, "CALL_NOT_FOUND", "there is no such call (any more)")
        return record

    def _call_made_here(self, record: CallRecord) -> _WebCall:
        call = self._calls.get(record.id)
        if call is None:
            message = "this call was not made here; only the program that made it can change it"
            raise RequestRefused(409, "NOT_SUPPORTED", message)
        return call


def _elicitation_answer(body: Mapping[str, object]) -> dict[str, object]:
    if body["success"] is False:
        return {"success": False, "cancelled": True}
    return {"success": True, "data": body.get("data", {})}
