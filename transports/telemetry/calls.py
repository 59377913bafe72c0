"""Work that is awaited, as a span and a measurement. Where neither is wanted, it is awaited as it is."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TypeVar

from . import metrics, spans
from .metrics import CALL_DURATION, record
from .spans import Attributes, Kind, error_type, span

__all__ = ["is_observing", "observed_call", "traced"]

_T = TypeVar("_T")


def is_observing() -> bool:
    """Whether spans are made or measurements taken."""
    return spans._tracing is not None or bool(metrics._sinks)  # here, as each call asks


async def observed_call(work: Awaitable[_T], call: str, capability: str, transport: str) -> _T:
    """Await ``work``, a call of ``capability`` with the id ``call``: in a span, by the conventions for a tool that is
    executed, and with a measurement."""
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


def traced(work: Awaitable[_T], name: str, attributes: Attributes, kind: Kind = "internal") -> Awaitable[_T]:
    """Return ``work``, in a :func:`~.spans.span` if there are any."""
    return work if spans._tracing is None else _traced(work, name, attributes, kind)


async def _traced(work: Awaitable[_T], name: str, attributes: Attributes, kind: Kind) -> _T:
    with span(name, attributes, kind):
        return await work
