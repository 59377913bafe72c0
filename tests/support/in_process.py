"""The reference app's Python capabilities behind the in-process transport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from transports import CapabilityError, MemoryTransport
from transports.memory import Call, Handler
from transports.protocol._params import prepare_params
from transports.protocol.messages import Message
from transports.websocket.envelope import encode_envelope
from webapp_fixture.calls import Capability, Context, Record
from webapp_fixture.errors import AbpError, Cancelled
from webapp_fixture.fault_handlers import fault_handlers
from webapp_fixture.handlers import app_handlers, with_definitions
from webapp_fixture.state import State


def in_process(kind: type[MemoryTransport] = MemoryTransport) -> MemoryTransport:
    """A new one of a ``kind``. What it lists has no schemas; ``app.record`` tells of cancelled calls."""
    record, state = Record(), State()
    capabilities = with_definitions(app_handlers(state, record)) | with_definitions(fault_handlers(state), faults=True)

    def handler(capability: Capability) -> Handler:
        async def run(params: Mapping[str, object], call: Call) -> object:
            prepared, content = prepare_params(dict(params))
            message = Message("capabilities/call", {"params": prepared}, content=content)
            plain = json.loads(encode_envelope(message))["payload"]["params"]

            async def elicit(request: dict[str, Any]) -> Any:
                return await call.elicit(request["method"], request.get("params", {}))

            try:
                return await capability.handler(plain, Context(call.id, call.progress, call.notify, elicit))
            except Cancelled:
                raise refusal({"cancelled": True}) from None
            except AbpError as error:
                raise refusal({"error": error.as_json()}) from error

        return run

    def raw(name: str) -> Handler:
        async def run(params: Mapping[str, object], call: Call) -> object:
            context = Context(call.id, call.progress, call.notify, None)  # type: ignore[arg-type]
            answer = (await capabilities[name].handler(dict(params), context)).value
            if answer.get("success"):
                return answer.get("data")
            raise refusal(answer)

        return run

    async def stopped(params: Mapping[str, object], call: Call) -> object:
        return {"cancelled": [{"reason": reason} for reason in transport.cancelled.values()]}

    handlers = {name: handler(capability) for name, capability in capabilities.items()}
    raws = {name: raw(name) for name in ("fault.bad_answer", "fault.crash_half")}
    transport = kind({**handlers, **raws, "app.record": stopped})
    return transport


def refusal(answer: Mapping[str, Any]) -> CapabilityError:
    described = {"code": "CANCELLED", "message": "the call was cancelled", **answer.get("error", {})}
    error = CapabilityError(described["message"], code=described["code"], details=described.get("details"))
    error.cancelled = bool(answer.get("cancelled"))
    return error
