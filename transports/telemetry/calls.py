"""Calls of capabilities, as a span and a measurement."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TypeVar

from .metrics import CALL_DURATION, is_recording, record
from .spans import error_type, is_tracing, span

__all__ = ["observed_call"]

_T = TypeVar("_T")


def observed_call(work: Awaitable[_T], call: str, capability: str, transport: str) -> Awaitable[_T]:
    """Return ``work``, a call of ``capability``, or a coroutine around it if spans are made or measurements taken."""
    return _observed(work, call, capability, transport) if is_tracing() or is_recording() else work


async def _observed(work: Awaitable[_T], call: str, capability: str, transport: str) -> _T:
    labels = {"abp.capability": capability, "abp.transport": transport}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": capability, "gen_ai.tool.call.id": call}
    started, error = time.perf_counter(), ""
    try:
        with span(f"execute_tool {capability}", {**tool, **labels}):
            return await work
    except BaseException as failure:
        error = error_type(failure)
        raise
    finally:
        record(CALL_DURATION, time.perf_counter() - started, {**labels, "error.type": error} if error else labels)
