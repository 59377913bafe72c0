"""``/calls`` and ``/apps/{session}/calls``: calls of everybody to look at, and calls to make, answer and cancel."""

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
from ..shared.activity import Activity, CallRecord
from ..shared.apps import App
from .access import Visitor
from .answers import Refused, body_of, json_answer
from .artifacts import Artifacts, seconds_in
from .connected import Connections

__all__ = ["Calls"]

#: Calls that may run in one app at a time.
_MOST = 32
#: Calls in one list.
_PAGE = 100
_END = 5.0


class _Running:
    """One call that was made here; an :class:`~transports.surfaces.shared.apps.Asker`."""

    def __init__(self, key: str, activity: Activity, patience: float) -> None:
        self.key = key
        self.task: asyncio.Task[None]
        self._activity = activity
        self._patience = patience
        self._asking: asyncio.Future[Mapping[str, object]] | None = None

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """The answer that somebody gives; after a while, the default policy of every session."""
        mine: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._asking = mine
        self._activity.asked(self.key, request)
        try:
            return await asyncio.wait_for(mine, self._patience)
        except TimeoutError:
            return default_answer(request)
        finally:
            if self._asking is mine:
                self._asking = None
            self._activity.asked(self.key, None)

    def answer(self, given: Mapping[str, object]) -> bool:
        """Whether somebody had asked."""
        if self._asking is None or self._asking.done():
            return False
        self._asking.set_result(given)
        return True

    async def aclose(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,), timeout=_END)


class Calls:
    """Calls of one server."""

    def __init__(self, activity: Activity, connections: Connections, artifacts: Artifacts, *, patience: float) -> None:
        self._activity = activity
        self._connections = connections
        self._artifacts = artifacts
        self._patience = patience
        self._running: dict[str, _Running] = {}

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``GET /calls``, newest first."""
        session, limit = request.query.get("session"), request.query.get("limit", str(_PAGE))
        if not (limit.isascii() and limit.isdigit() and 0 < len(limit) < 9):
            raise Refused(400, "INVALID_PARAMS", "limit must be a whole number")
        found = [
            record.as_dict()
            for record in reversed(self._activity.calls.values())
            if visitor.scope.covers(record.scope) and session in (None, "", record.session)
        ]
        return json_answer({"calls": found[: int(limit)]})

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``GET /calls/{id}``, with the result."""
        record = self._record(request, visitor)
        result = self._activity.result(record.id) or b"null"  # JSON already, and maybe much of it
        body = encode_json(record.as_dict())[:-1] + b',"result":' + result + b"}"
        return web.Response(body=body, content_type="application/json")

    async def cancel(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``DELETE /calls/{id}``: of calls that were made here; one that is over stays as it is."""
        record = self._record(request, visitor)
        if record.duration_ms is None:
            self._mine(record).task.cancel()
        return json_answer(record.as_dict(), status=202)

    async def answer(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``POST /calls/{id}/answer``."""
        record = self._record(request, visitor)
        body = await body_of(request)
        if not isinstance(body.get("success"), bool):
            raise Refused(400, "INVALID_PARAMS", "an answer is {success: true, data: {…}} or {success: false}")
        if record.status != "asking" or not self._mine(record).answer(_answer(body)):
            raise Refused(409, "INVALID_PARAMS", "this call has no open question")
        return web.Response(status=204)

    async def make(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Begin a call; what comes of it is told by events and ``/calls/{id}``."""
        app = self._connections.found(request, visitor).app
        body = await body_of(request)
        capability, params = body.get("capability"), body.get("params", {})
        if not isinstance(capability, str) or not isinstance(params, dict):
            raise Refused(400, "INVALID_PARAMS", "a call is {capability, params: {…}, files?, timeout?}")
        known = app.session.capabilities
        if capability not in known:
            raise unknown_capability(app.session.info.name, capability, known)
        timeout = seconds_in(body, "timeout", 0.0) if body.get("timeout") is not None else None
        if sum(isinstance(one, _Running) for one in app.running) >= _MOST:
            raise Refused(429, "RATE_LIMITED", f"{_MOST} calls of this app run already")
        await self._fill(params, body.get("files", []), visitor, capability)
        running = _Running(str(uuid.uuid4()), self._activity, self._patience)
        record = self._activity.call_started(app, running.key, capability)
        self._running[running.key] = running
        app.running.append(running)
        running.task = asyncio.ensure_future(self._run(running, app, capability, params, timeout))
        return json_answer(record.as_dict(), status=202)

    async def aclose(self) -> None:
        """Cancel all calls that were made here."""
        await asyncio.gather(*(running.aclose() for running in tuple(self._running.values())))

    async def _run(
        self, running: _Running, app: App, capability: str, params: Mapping[str, object], timeout: float | None
    ) -> None:
        result, error, started = None, None, time.perf_counter()
        try:
            result = await app.session.call(capability, params, timeout=timeout, call_id=running.key)
        except ABPError as raised:
            error = raised
        finally:
            app.running.remove(running)
            del self._running[running.key]
            if result is None and error is None:
                error = CapabilityError(f"{capability}: cancelled", code="CANCELLED")
            # the session tells it too, but not where it had closed before
            duration = (time.perf_counter() - started) * 1000
            self._activity.call_finished(CallFinished(running.key, capability, duration, result, error))

    async def _fill(self, params: dict[str, object], files: object, visitor: Visitor, capability: str) -> None:
        given: dict[str, GivenFile] = {}
        for file in files if isinstance(files, list) else [files]:
            match file:
                case {"param": str(param), "artifact": str(artifact)}:
                    given[param] = {"id": artifact}
                case _:
                    raise Refused(400, "INVALID_PARAMS", "files are [{param, artifact}]: upload them first")
        accepted = await accept_files(cast("Mapping[str, GivenFile]", given), store=self._artifacts.view(visitor),
                                      capability=capability)  # fmt: skip
        for param, one in accepted.items():
            set_path(params, param.split("."), one.binary)

    def _record(self, request: web.Request, visitor: Visitor) -> CallRecord:
        record = self._activity.calls.get(request.match_info["id"])
        if record is None or not visitor.scope.covers(record.scope):
            raise Refused(404, "CALL_NOT_FOUND", "there is no such call (any more)")
        return record

    def _mine(self, record: CallRecord) -> _Running:
        running = self._running.get(record.id)
        if running is None:
            raise Refused(409, "NOT_SUPPORTED", "this call was not made here; whoever made it can change it")
        return running


def _answer(body: Mapping[str, object]) -> dict[str, object]:
    if body["success"] is False:
        return {"success": False, "cancelled": True}
    return {"success": True, "data": body.get("data", {})}
