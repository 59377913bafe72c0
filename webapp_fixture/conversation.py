"""The app as a stream of messages: session, calls and questions of one client, over any carrier."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from webapp_fixture.calls import Calls, Capability, Context, Handler, Json, Record, Ticket
from webapp_fixture.definitions import app_info, bound, given_params, named_faults
from webapp_fixture.errors import MISSING, AbpError, failure
from webapp_fixture.fault_handlers import fault_handlers
from webapp_fixture.frames import envelope
from webapp_fixture.handlers import app_handlers, greeting, sync, with_definitions
from webapp_fixture.state import State

PROTOCOL_VERSION = "0.1"
FEATURES = {"notifications": True, "progress": True, "elicitation": True, "dynamicCapabilities": True}
GATED = {"notification": "notifications", "progress": "progress"}


def _bulk(count: int) -> dict[str, Capability]:
    schema = {"type": "object", "properties": {"value": {"type": "string", "description": "Anything"}}}
    rest = {"inputSchema": schema, "outputSchema": {}, "features": {}, "available": True, "requirements": []}
    made = {}
    for number in range(count):
        name = f"bulk.{number:06}"
        description = f"Number {number} of {count} capabilities that make the list long"
        handler = sync(lambda params, name=name: {"name": name, "value": params.get("value", "")})  # type: ignore[misc]
        made[name] = Capability({"name": name, "description": description, **rest}, handler)
    return made


class Conversation:
    """The reference app for one client, over a carrier of the caller's: a socket, a pipe, a queue.

    ``deliver`` sends an envelope, a dictionary of JSON values, to the client; :meth:`receive` takes one from it.
    ``query`` has options as in the address of the WebSocket (``websocket.py``). Close it with :meth:`aclose`."""

    def __init__(
        self,
        deliver: Callable[[Json], Coroutine[Any, Any, None]],
        query: dict[str, str] | None = None,
        state: State | None = None,
    ) -> None:
        self.deliver = deliver
        self.query = query or {}
        self.session_id: str | None = None
        self.features: Json = {}
        self.record = Record()
        state = state or State()
        usual = with_definitions({**app_handlers(state, self.record), "app.toggle": self.toggle})
        count = self.query.get("capabilities", "")
        if count.isdigit():
            usual |= _bulk(int(count))
        self.named, self.given = named_faults(self.query), given_params(self.query)
        faults = self._faults(state)
        self.listed = [entry.definition for entry in usual.values()]
        self.listed += [entry.definition for name, entry in faults.items() if self.lists_fault(name)]
        #: Added by ``app.toggle``.
        self.extra: dict[str, Capability] = {}
        self.calls = Calls(usual | faults, self.record, self.send, self.elicit)
        self.questions: dict[str, asyncio.Future[Any]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def lists_fault(self, name: str) -> bool:
        return self.named is None or name in self.named

    def _faults(self, state: State) -> dict[str, Capability]:
        """Return the ``fault.*`` capabilities; calls of those that the query names get its parameters."""
        faults = with_definitions(fault_handlers(state), faults=True)
        for name in faults.keys() & set(self.named or ()):
            faults[name] = Capability(bound(faults[name].definition, self.given), self._with_given(faults[name]))
        return faults

    def _with_given(self, fault: Capability) -> Handler:
        return lambda params, context: fault.handler({**params, **self.given}, context)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task of its own, which is cancelled when the conversation is closed."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def send(self, kind: str, payload: Json) -> None:
        """Send a notification or progress, unless the client said that it wants none."""
        if self.features.get(GATED.get(kind, "")) is not False:
            self.record.push(self.record.events, kind=kind, payload=payload)
            await self.deliver(envelope(kind, payload=payload))

    async def elicit(self, request: Json) -> Json:
        """Ask the client and return its response, always ``{success, data?, error?, cancelled?}``."""
        self.record.push(self.record.events, kind="elicitation", payload=request)
        if self.features.get("elicitation") is False:
            error = AbpError("NOT_SUPPORTED", "the client does not answer questions")
            return {"success": False, "error": error.as_json()}
        question = str(uuid.uuid4())
        self.questions[question] = answer = asyncio.get_running_loop().create_future()
        timeout = request.get("timeout")
        try:
            async with asyncio.timeout(timeout / 1000 if timeout else None):
                await self.deliver(envelope("elicitation/request", question, payload=request))
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
        """Begin the session and return the answer. Raises :class:`AbpError` if there is a session already."""
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
        session: Json = {"sessionId": self.session_id, "protocolVersion": PROTOCOL_VERSION, "app": app}
        return {**session, "capabilities": self.listed, "features": dict(FEATURES)}

    async def toggle(self, params: Json, context: Context) -> Json:
        """app.toggle: add one more capability, or remove it again."""
        name = params.get("capability", "extra.hello")
        known = self.calls.capabilities
        if name in self.extra:
            extra = self.extra.pop(name)
            del known[name]
            self.listed.remove(extra.definition)
            change = "removed"
        elif name in known:
            raise AbpError("INVALID_PARAMS", f"{name} is always there; give a name of your own")
        else:
            known[name] = self.extra[name] = greeting(name)
            self.listed.append(known[name].definition)
            change = "added"
        changes: Json = {"added": [], "removed": [], "changed": [], change: [name]}
        await context.notify("notifications/capabilities/list_changed", changes)
        return {"capability": name, "available": change == "added"}

    async def receive(self, message: Json) -> None:
        """Handle a message of the client. A call runs in a task of its own; an unknown message is only recorded."""
        kind, message_id, payload = message.get("type"), message.get("id"), message.get("payload")
        payload = payload if isinstance(payload, dict) else {}
        if kind == "capabilities/call":
            self.take_call(message_id, payload)
        elif kind == "capabilities/cancel":
            self._take_cancellation(message_id, payload)
        elif kind == "elicitation/response":
            self._take_response(message_id, message.get("payload"))
        elif kind == "initialize":
            await self._take_initialize(message_id, payload)
        elif kind == "shutdown":
            self.calls.cancel_all("shutdown")
            self.session_id = None
        else:
            self.record.push(self.record.events, kind="ignored", payload={"type": kind})

    async def _take_initialize(self, message_id: Any, params: Json) -> None:
        if "noinit" in self.query:
            return
        try:
            answer = self.initialize(params)
        except AbpError as error:
            answer = {"success": False, "error": error.as_json()}
        await self.deliver(envelope("initialize-result", message_id, payload=answer))

    def _take_cancellation(self, message_id: Any, payload: Json) -> None:
        if self.session_id:
            answer = self.calls.cancel(payload.get("callId"), payload.get("reason"))
        else:
            answer = failure(AbpError("NOT_INITIALIZED", "send initialize first", retryable=True))
        self.spawn(self.deliver(envelope("capabilities/cancel-result", message_id, payload=answer)))

    def _take_response(self, message_id: Any, response: Any) -> None:
        question = self.questions.get(message_id) if isinstance(message_id, str) else None
        if question and not question.done():
            question.set_result(response)

    def take_call(self, message_id: Any, payload: Json) -> None:
        """Refuse a call, or begin it and run it in a task. It is begun before this returns, so that a cancellation in
        the next message finds it."""
        options = payload.get("options")
        if not isinstance(options, dict):
            options = {}
        try:
            if not self.session_id:
                raise AbpError("NOT_INITIALIZED", "send initialize first", retryable=True)
            ticket = self.calls.begin(payload.get("capability"), options)
        except AbpError as error:
            self.spawn(self.deliver(envelope("capabilities/call-result", message_id, payload=failure(error))))
            return
        self.spawn(self.finish(message_id, ticket, payload.get("params")))

    async def finish(self, message_id: Any, ticket: Ticket, params: Any) -> None:
        answer = await self.calls.finish(ticket, params)
        rest = {} if answer is MISSING else {"payload": answer}
        await self.deliver(envelope("capabilities/call-result", message_id, **rest))

    async def aclose(self) -> None:
        """End the conversation: its tasks are cancelled and have ended on return."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.calls.close()
