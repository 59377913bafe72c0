"""``/abp``: the app over WebSocket. One JSON message per text frame, one task per call, one session per connection.

Query: ``auth`` (as for downloads; ``token`` alone means ``auth=query``), ``subprotocol``, ``noinit`` (initialize is
never answered), ``faults`` (``fault.*`` and ``wire.*`` are listed too, or only those named: ``faults=slow,wire.cut``;
``given={"ms":5}`` are parameters that each call of these gets), ``capabilities=N`` (so many more),
``deflate`` (permessage-deflate may be agreed on, for ``wire.deflate_bomb``; nothing else is ever deflated).
"""

import asyncio
import contextlib
import hmac
import json
from typing import Any

from aiohttp import WSMsgType, web

from webapp_fixture.calls import Json
from webapp_fixture.conversation import Conversation
from webapp_fixture.definitions import bound
from webapp_fixture.downloads import offered_credential
from webapp_fixture.errors import AbpError, failure
from webapp_fixture.frames import PONG, Pipe, envelope
from webapp_fixture.state import SESSION_COOKIE, STATE, RequestRecord, State
from webapp_fixture.validate import validate_params
from webapp_fixture.wire import FAULTS, definitions, make_reply

MAX_MESSAGE = 1 << 30
GOODBYE = 0.1  # seconds that a client gets to answer the closing handshake
routes = web.RouteTableDef()


class Connection(Conversation):
    """One client on a WebSocket, where the wire can go wrong too."""

    def __init__(self, state: State, query: dict[str, str], socket: web.WebSocketResponse, pipe: Pipe) -> None:
        super().__init__(pipe.message, query, state)
        self.socket, self.pipe = socket, pipe
        self.wire = {entry["name"]: entry for entry in definitions()}
        for name in self.wire.keys() & set(self.named or ()):
            self.wire[name] = bound(self.wire[name], self.given)
        self.listed += [entry for name, entry in self.wire.items() if self.lists_fault(name)]
        self.done = asyncio.Event()

    def take_call(self, message_id: Any, payload: Json) -> None:
        """Refuse a call, or run it in a task."""
        name = payload.get("capability")
        if not isinstance(name, str) or name not in self.wire:
            return super().take_call(message_id, payload)
        params = payload.get("params")
        if params is None:
            params = {}
        if isinstance(params, dict) and name in (self.named or ()):
            params = {**params, **self.given}
        options = payload.get("options")
        if not isinstance(options, dict):
            options = {}
        try:
            if not self.session_id:
                raise AbpError("NOT_INITIALIZED", "send initialize first", retryable=True)
            validate_params(params, self.wire[name]["inputSchema"])
        except AbpError as error:
            refusal = envelope("capabilities/call-result", message_id, payload=failure(error))
            return self.spawn(self.pipe.message(refusal))
        self.record.push(self.record.calls, callId=options.get("callId"), capability=name, state="wire")
        return self.spawn(FAULTS[name](self.pipe, make_reply(name, message_id, params, options)))

    async def run(self) -> None:
        """Serve the connection until either side ends it. Its tasks have ended on return."""
        try:
            await self._read()
        finally:
            await self.aclose()
            self.pipe.drop(at_once=self.pipe.silent)
            self.done.set()

    async def _read(self) -> None:
        while True:
            frame = await self.socket.receive()
            if frame.type is WSMsgType.PING:
                self.spawn(self.pipe.frame(PONG, bytes(frame.data)))
            elif frame.type is WSMsgType.TEXT:
                try:
                    message = json.loads(frame.data)
                except (ValueError, RecursionError):
                    return await self.pipe.close_frame(1007, "not JSON")
                await self.receive(message if isinstance(message, dict) else {})
            elif frame.type is WSMsgType.BINARY:
                return await self.pipe.close_frame(1003, "text frames only")
            elif frame.type is WSMsgType.CLOSE and not self.pipe.closed:
                return await self.pipe.close_frame(frame.data or 1005)
            elif frame.type is not WSMsgType.PONG:
                return None

    async def stop(self) -> None:
        """End the connection: with a closing handshake if the client answers it within 0.1 s, else by dropping it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await self.pipe.close_frame(1001, "the server stops")
                await self.done.wait()
        self.pipe.drop()


def _check_access(request: web.Request, state: State) -> None:
    kind = request.query.get("auth", "query" if "token" in request.query else "none")
    offered, right = offered_credential(request, state, kind)
    if offered is None or not hmac.compare_digest(offered.encode(), right.encode()):
        raise web.HTTPUnauthorized(text="this socket needs a credential\n", headers={"WWW-Authenticate": "Bearer"})


@routes.get("/abp")
async def abp(request: web.Request) -> web.WebSocketResponse:
    """Accept a WebSocket and serve it to its end."""
    state = request.app[STATE]
    state.handshakes.append(RequestRecord(request.method, request.raw_path, request.headers))
    _check_access(request, state)
    subprotocol = request.query.get("subprotocol")
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if subprotocol and subprotocol not in offered:
        raise web.HTTPBadRequest(text=f"this socket needs the subprotocol {subprotocol}\n")
    socket = web.WebSocketResponse(
        autoclose=False,
        autoping=False,
        protocols=(subprotocol,) if subprotocol else (),
        compress="deflate" in request.query,
        max_msg_size=MAX_MESSAGE,
    )
    socket.set_cookie(SESSION_COOKIE, state.session, httponly=True, samesite="Lax", path="/")
    await socket.prepare(request)
    if request.transport is None:
        return socket  # gone already
    connection = Connection(state, dict(request.query), socket, Pipe(request.transport))
    state.sockets.add(connection)
    try:
        await connection.run()
    finally:
        state.sockets.discard(connection)
    return socket


async def stop_sockets(app: web.Application) -> None:
    """End every connection; a server must not wait for its clients."""
    await asyncio.gather(
        *(connection.stop() for connection in app[STATE].sockets if isinstance(connection, Connection))
    )
