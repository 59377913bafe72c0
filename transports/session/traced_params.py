"""Parameters of a call as an attribute of its span, where a setting asks for it."""

from __future__ import annotations

from ..protocol.redaction import Redactor
from ..protocol.strict_json import encode_json
from ..telemetry import annotate, is_tracing

__all__ = ["annotate_params"]

#: Bytes of parameters in a span at most.
_MAX_BYTES = 8192
_REDACTOR = Redactor()


def annotate_params(params: object) -> None:
    """Put parameters of a call, in which content is a reference, into the current span as JSON without secrets."""
    if not is_tracing():
        return
    try:
        text = encode_json(_REDACTOR.tree(params)).decode()
    except (TypeError, ValueError, RecursionError):
        return  # the call itself will say what is wrong with them
    annotate({"gen_ai.tool.call.arguments": text if len(text) <= _MAX_BYTES else f"{text[:_MAX_BYTES]}…"})
