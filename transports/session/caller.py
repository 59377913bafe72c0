"""One call of a capability from its parameters to its result, after which it is never sent again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ..binary.params import prepare_params
from ..errors import CapabilityError, UsageError
from ..protocol.capabilities import with_suggestions
from ..routing import Result
from .calls import Calls, Repeats
from .event_dispatch import EventDispatcher, OnProgress
from .handshake import Handshake
from .resources import Resources
from .results import Results

__all__ = ["Caller", "check_arguments"]


def check_arguments(capability: object, params: object) -> None:
    """Raise :class:`~transports.errors.UsageError` if these are not the name of a capability and its parameters."""
    if not isinstance(capability, str):
        kind = type(capability).__name__
        raise UsageError(f"a capability is called by its name, which is text, not {kind}: app.call('export.pdf')")
    if params is not None and not isinstance(params, Mapping):
        raise UsageError(
            f"{capability}: params must be a mapping of names to values, such as {{'html': '<h1>Hi</h1>'}}, "
            f"not {type(params).__name__}"
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Makes the calls of one session, of the parts of it that a call goes through."""

    handshake: Handshake
    resources: Resources
    calls: Calls
    events: EventDispatcher
    results: Results

    async def call(
        self,
        call: str,
        capability: str,
        params: Mapping[str, object] | None,
        seconds: float,
        on_progress: OnProgress | None,
        repeats: Repeats,
    ) -> Result:
        """Call ``capability`` under the id ``call`` and store the answer. ``seconds`` are for the app's answer. Raises
        what :meth:`Session.call <transports.session.session.Session.call>` does."""
        started = time.perf_counter()
        prepared, content = prepare_params(dict(params)) if params else ({}, [])
        known, declared, warnings = self.handshake.capabilities, None, list[str]()
        if capability in known:
            declared = known[capability]
            warnings = self.handshake.check_params(declared, prepared, content)
        if capability in self.resources.names:
            return await self.resources.call(capability, params or {}, seconds, call)
        payload: dict[str, object] = {"capability": capability, "params": prepared}
        try:
            reply, data = await self.calls.request(
                call, capability, payload, content, timeout=seconds, on_progress=on_progress, repeats=repeats
            )
        except CapabilityError as error:
            raise with_suggestions(error, capability, self.handshake.capabilities, prepared) from None
        report = self.events.download_progress(call, on_progress)
        result = await self.results.from_answer(
            reply, data, capability, declared, call=call, warnings=warnings, started=started, on_download=report
        )
        has_blocks = isinstance(result.data, dict) and "content" in result.data
        return await self.resources.read_links(result, call) if has_blocks else result
