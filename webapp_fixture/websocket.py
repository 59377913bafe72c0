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
import uuid
from collections.abc import Coroutine
from typing import Any

from aiohttp import WSMsgType, web

from webapp_fixture.answers import fault_handlers
from webapp_fixture.calls import Calls, Capability, Context, Handler, Json, Record, Ticket
from webapp_fixture.definitions import app_info, bound, given_params, named_faults
from webapp_fixture.downloads import offered_credential
from webapp_fixture.frames import PONG, Pipe, envelope
from webapp_fixture.handlers import app_handlers, greeting, sync, with_definitions
from webapp_fixture.problems import MISSING, AbpError, failure
from webapp_fixture.records import SESSION_COOKIE, STATE, RequestRecord, State
from webapp_fixture.validate import validate_params
from webapp_fixture.wire import FAULTS, Shuffle, definitions, make_reply

PROTOCOL_VERSION = "0.1"
FEATURES = {"notifications": True, "progress": True, "elicitation": True, "dynamicCapabilities": True}
MAX_MESSAGE = 1 << 30
GOODBYE = 0.1  # seconds that a client gets to answer the closing handshake
GATED = {"notification": "notifications", "progress": "progress"}
routes = web.RouteTableDef()


def _bulk(count: int) -> dict[str, Capability]:
    schema = {"type": "object", "properties": {"value": {"type": "string", "description": "Anything"}}}
    rest = {"inputSchema": schema, "outputSchema": {}, "features": {}, "available": True, "requirements": []}
    made = {}
    for at in range(count):
        name = f"bulk.{at:06}"
        description = f"Number {at} of {count} capabilities that make the list long"
        handler = sync(lambda params, name=name: {"name": name, "value": params.get("value", "")})  # type: ignore[misc]
        made[name] = Capability({"name": name, "description": description, **rest}, handler)
    return made


class Connection:
    """One client: its session, its calls, its questions."""

    def __init__(self, state: State, query: dict[str, str], socket: web.WebSocketResponse, pipe: Pipe) -> None:
        self.socket, self.pipe, self.query = socket, pipe, query
        self.session_id: str | None = None
        self.features: Json = {}
        self.record = Record()
        count = query.get("capabilities", "")
        handlers = {**app_handlers(state, self.record), "app.toggle": self.toggle}
        usual = with_definitions(handlers) | _bulk(int(count) if count.isdigit() else 0)
        faults = with_definitions(fault_handlers(state), faults=True)
        self.listed = [entry.definition for entry in usual.values()]
        self.extra: dict[str, Capability] = {}
        self.wire = {entry["name"]: entry for entry in definitions()}
        self.given = given_params(query)
        self.named = named_faults(query)
        for name in self.named or ():
            if name in self.wire:
                self.wire[name] = bound(self.wire[name], self.given)
            elif name in faults:
                faults[name] = Capability(bound(faults[name].definition, self.given), self._with_given(faults[name]))
        offered = {**{name: entry.definition for name, entry in faults.items()}, **self.wire}
        self.listed += [entry for name, entry in offered.items() if self.named is None or name in self.named]
        self.calls = Calls(usual | faults, self.record, self.send, self.elicit)
        self.questions: dict[str, asyncio.Future[Any]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.shuffle: Shuffle | None = None
        self.done = asyncio.Event()

    def _with_given(self, fault: Capability) -> Handler:
        return lambda params, context: fault.handler({**params, **self.given}, context)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do that beside the reading; it ends with the connection at the latest."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def send(self, kind: str, payload: Json) -> None:
        """A message that answers nothing, unless the client said that it does not want such."""
        if self.features.get(GATED.get(kind, "")) is not False:
            self.record.push(self.record.events, kind=kind, payload=payload)
            await self.pipe.message(envelope(kind, payload=payload))

    async def elicit(self, request: Json) -> Json:
        """Ask the client; always answers {success, data?, error?, cancelled?}."""
        self.record.push(self.record.events, kind="elicitation", payload=request)
        if self.features.get("elicitation") is False:
            error = AbpError("NOT_SUPPORTED", "the client does not answer questions")
            return {"success": False, "error": error.as_json()}
        question = str(uuid.uuid4())
        self.questions[question] = answer = asyncio.get_running_loop().create_future()
        timeout = request.get("timeout")
        try:
            async with asyncio.timeout(timeout / 1000 if timeout else None):
                await self.pipe.message(envelope("elicitation/request", question, payload=request))
                response = await answer
        except TimeoutError:
            error = AbpError("TIMEOUT", f"no answer within {timeout} ms", retryable=True)
            response = {"success": False, "error": error.as_json()}
        finally:
            del self.questions[question]
        if not isinstance(response, dict):
            response = {"success": False, "cancelled": True}
        self.record.push(self.record.events, kind="elicitationAnswer", payload=response)
        return response

    def initialize(self, params: Json) -> Json:
        """Begin the session."""
        agent = params.get("agent")
        version = str(params.get("protocolVersion", PROTOCOL_VERSION))
        if self.session_id:
            raise AbpError("ALREADY_INITIALIZED", "there is a session already; send shutdown first")
        if not isinstance(agent, dict) or not isinstance(agent.get("name"), str):
            raise AbpError("MISSING_PARAM", "initialize needs agent: {name, version}")
        if version.split(".", maxsplit=1)[0] != PROTOCOL_VERSION.split(".", maxsplit=1)[0]:
            message = f"protocol version {version} is not supported; this app speaks {PROTOCOL_VERSION}"
            raise AbpError("NOT_SUPPORTED", message)
        features = params.get("features")
        self.features = features if isinstance(features, dict) else {}
        self.session_id = str(uuid.uuid4())
        app = {name: value for name, value in app_info().items() if name != "description"}
        return {
            "sessionId": self.session_id,
            "protocolVersion": PROTOCOL_VERSION,
            "app": app,
            "capabilities": self.listed,
            "features": dict(FEATURES),
        }

    async def toggle(self, params: Json, context: Context) -> Json:
        """app.toggle: add one more capability, or remove it again."""
        name = params.get("capability", "extra.hello")
        extra, known = self.extra.pop(name, None), self.calls.capabilities
        if extra is None and name in known:
            raise AbpError("INVALID_PARAMS", f"{name} is always there; give a name of your own")
        if extra is None:
            known[name] = self.extra[name] = greeting(name)
            self.listed.append(known[name].definition)
        else:
            del known[name]
            self.listed.remove(extra.definition)
        changes: Json = {"added": [], "removed": [], "changed": []}
        changes["added" if extra is None else "removed"].append(name)
        await context.notify("notifications/capabilities/list_changed", changes)
        return {"capability": name, "available": extra is None}

    async def receive(self, message: Json) -> None:
        """One message of the client's. Calls go on by themselves; what is unknown is recorded and otherwise ignored."""
        kind, message_id, payload = message.get("type"), message.get("id"), message.get("payload")
        payload = payload if isinstance(payload, dict) else {}
        if kind == "capabilities/call":
            self.take_call(message_id, payload)
        elif kind == "capabilities/cancel":
            answer = self.calls.cancel(payload.get("callId"), payload.get("reason"))
            self.spawn(self.pipe.message(envelope("capabilities/cancel-result", message_id, payload=answer)))
        elif kind == "elicitation/response":
            question = self.questions.get(message_id) if isinstance(message_id, str) else None
            if question and not question.done():
                question.set_result(message.get("payload"))
        elif kind == "initialize":
            if "noinit" not in self.query:
                try:
                    answer = self.initialize(payload)
                except AbpError as error:
                    answer = {"success": False, "error": error.as_json()}
                await self.pipe.message(envelope("initialize-result", message_id, payload=answer))
        elif kind == "shutdown":
            self.calls.cancel_all("shutdown")
            self.session_id = None
        else:
            self.record.push(self.record.events, kind="ignored", payload={"type": kind})

    def take_call(self, message_id: Any, payload: Json) -> None:
        """Begin a call: refuse it, or run it beside the others. In order, so that a cancel that follows finds it."""
        name, params, options = payload.get("capability"), payload.get("params"), payload.get("options")
        options = options if isinstance(options, dict) else {}
        params = {} if params is None else params
        if self.named and isinstance(name, str) and name in self.named and isinstance(params, dict):
            params = {**params, **self.given}
        shuffle, place = self.join_shuffle(name, params)
        try:
            if not self.session_id:
                raise AbpError("NOT_INITIALIZED", "send initialize first", retryable=True)
            if not isinstance(name, str) or name not in self.wire:
                ticket = self.calls.begin(name, options)
                return self.spawn(self.finish(message_id, ticket, params, shuffle, place))
            validate_params(params, self.wire[name]["inputSchema"])
        except AbpError as error:
            refusal = envelope("capabilities/call-result", message_id, payload=failure(error))
            return self.spawn(self.reply(refusal, shuffle, place))
        self.record.push(self.record.calls, callId=options.get("callId"), capability=name, state="wire")
        reply = make_reply(name, message_id, params, options)
        return self.spawn(self.reply(reply.message(), shuffle, place) if shuffle else FAULTS[name](self.pipe, reply))

    async def finish(self, message_id: Any, ticket: Ticket, params: Any, shuffle: Shuffle | None, place: int) -> None:
        """Run a call and send its answer."""
        answer = await self.calls.finish(ticket, params)
        rest = {} if answer is MISSING else {"payload": answer}
        await self.reply(envelope("capabilities/call-result", message_id, **rest), shuffle, place)

    async def reply(self, message: Json, shuffle: Shuffle | None, place: int) -> None:
        """Send an answer, or hold it until all of its shuffle are there."""
        for each in shuffle.add(place, message) if shuffle else [message]:
            await self.pipe.message(each)

    def join_shuffle(self, name: Any, params: Any) -> tuple[Shuffle | None, int]:
        """The shuffle that a call belongs to, if one is on or begins with it, and the call's place in it."""
        if self.shuffle is None and name == "wire.shuffle" and self.session_id:
            size = params.get("n", 2) if isinstance(params, dict) else 1
            self.shuffle = Shuffle(size if type(size) is int and size > 0 else 1)
        shuffle = self.shuffle
        place = shuffle.join() if shuffle else 0
        if shuffle and place == shuffle.size:
            self.shuffle = None
        return shuffle, place

    async def run(self) -> None:
        """Until either side ends it; then no task of it is left."""
        try:
            await self._read()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            self.calls.close()
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
        """End it, as politely as the client lets."""
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
    """The handshake and all that follows."""
    state = request.app[STATE]
    state.handshakes.append(RequestRecord(request.method, request.raw_path, request.headers))
    _check_access(request, state)
    wanted = request.query.get("subprotocol")
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if wanted and wanted not in offered:
        raise web.HTTPBadRequest(text=f"this socket needs the subprotocol {wanted}\n")
    socket = web.WebSocketResponse(
        autoclose=False,
        autoping=False,
        protocols=(wanted,) if wanted else (),
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
