"""Parameters of a call as an attribute of its span, where a setting asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..artifacts.content import readable_copy
from ..binary.detect import Found, replace
from ..errors import UsageError
from ..protocol.strict_json import encode_json
from ..telemetry import annotate, is_tracing

__all__ = ["annotate_params"]


def annotate_params(payload: Mapping[str, object], content: Sequence[Found]) -> None:
    """Put ``payload["params"]`` of a call into the current span as JSON, without secrets and with long texts cut, by
    the rules for what models see of a file's origin. Of ``content``, which is among them, nothing is said."""
    if not is_tracing():
        return
    params = replace(payload["params"], {item.path: "<content>" for item in content})
    try:
        text = encode_json(readable_copy({"params": params})["params"]).decode()
    except (UsageError, KeyError):
        return  # no JSON, or too much of it: the call itself says what is wrong with them
    annotate({"gen_ai.tool.call.arguments": text})
