"""The answer to an app's question when the caller has no handler for it (docs/protocol.md 5.3). No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from .payloads import ElicitationRequest

__all__ = ["DECLINED", "default_answer"]

#: The answer that declines a question.
DECLINED: Mapping[str, object] = {"success": False, "cancelled": True}

#: The key of an answer's ``data`` by method (docs/protocol.md 5.2). Other methods are declined: nobody can make
#: up a file or the text of a model.
_ANSWERS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/select": "selected",
    "elicitation/confirm": "confirmed",
}


def default_answer(request: ElicitationRequest) -> Mapping[str, object]:
    """Return the ``default`` that the app itself names, in ``params`` or in their ``schema``, as an answer. Without one
    the question is declined, and so is a confirmation of something ``destructive``, whatever its default."""
    key = _ANSWERS.get(request.method)
    schema = request.params.get("schema")
    places = (request.params, schema if isinstance(schema, Mapping) else {})
    given = [place["default"] for place in places if place.get("default") is not None]
    if key is None or not given:
        return DECLINED
    if key == "confirmed" and (given[0] is not False) and any(place.get("destructive") for place in places):
        return DECLINED
    return {"success": True, "data": {key: given[0]}}
