"""Spans: what the rest of the package says of its work, to a tracer if there is one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, TypeAlias

from ..errors import ABPError

__all__ = [
    "Attributes",
    "Kind",
    "Tracing",
    "annotate",
    "continue_trace",
    "error_type",
    "fail",
    "is_tracing",
    "propagation_headers",
    "span",
    "trace_with",
]

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
Kind: TypeAlias = Literal["internal", "server", "client"]

#: An app chooses the codes of its errors: what does not look like a code is no name of an error.
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class Tracing(Protocol):
    """What makes spans: :class:`transports.telemetry.otel.OtelTracing`."""

    def span(self, name: str, kind: Kind, attributes: Attributes) -> AbstractContextManager[object]:
        """Return a span that lasts as long as its block, and is the parent of those in it."""

    def annotate(self, attributes: Attributes) -> None:
        """Add attributes to the current span."""

    def fail(self, error_type: str) -> None:
        """Mark the current span as one of work that failed."""

    def continue_trace(self, carrier: Mapping[str, str]) -> AbstractContextManager[object]:
        """Make the span that ``carrier`` names by ``traceparent`` the parent of those in the block."""

    def headers(self) -> Mapping[str, str]:
        """Return ``traceparent`` and ``tracestate`` of the current span (W3C Trace Context)."""


_tracing: Tracing | None = None
_OFF = nullcontext()


def trace_with(tracing: Tracing | None) -> None:
    """Make spans with ``tracing`` from now on."""
    global _tracing
    _tracing = tracing


def is_tracing() -> bool:
    """Whether spans are made."""
    return _tracing is not None


def span(name: str, attributes: Attributes, kind: Kind = "internal") -> AbstractContextManager[object]:
    """Return a span for the work in its block. An error that leaves the block is recorded by its :func:`error_type`
    alone, since messages may quote an app."""
    return _OFF if _tracing is None else _tracing.span(name, kind, attributes)


def annotate(attributes: Attributes) -> None:
    """Add attributes to the current span."""
    if _tracing is not None:
        _tracing.annotate(attributes)


def fail(error_type: str) -> None:
    """Mark the current span as one of work that failed, without leaving it by an exception."""
    if _tracing is not None:
        _tracing.fail(error_type)


def continue_trace(carrier: Mapping[str, str]) -> AbstractContextManager[object]:
    """Continue the trace of a request with these headers in the block; without a valid ``traceparent`` nothing is
    changed."""
    return _OFF if _tracing is None else _tracing.continue_trace(carrier)


def propagation_headers() -> Mapping[str, str]:
    """Return the headers by which a server continues the current trace (W3C Trace Context), without baggage."""
    return {} if _tracing is None else _tracing.headers()


def error_type(error: BaseException) -> str:
    """Return the value of ``error.type`` for an error: its code, else the name of its class."""
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED"
    error = getattr(error, "error", error)  # of an exception that carries one of ours, such as RetryRequest
    if isinstance(error, ABPError):
        return error.code if _CODE.fullmatch(error.code) else "_OTHER"
    return type(error).__qualname__
