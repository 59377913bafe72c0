"""What is answered when an app asks and nobody is there to be asked: the policy, as data."""

from __future__ import annotations

from collections.abc import Mapping

from .payloads import ElicitationRequest

__all__ = ["DECLINED", "default_answer"]

DECLINED: Mapping[str, object] = {"success": False, "cancelled": True}

#: The key of an answer's ``data`` by method (PROTOCOL "App → client"). What is not here is declined: files and texts of
#: a model cannot be made up.
_ANSWERS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/select": "selected",
    "elicitation/confirm": "confirmed",
}


def default_answer(request: ElicitationRequest) -> Mapping[str, object]:
    """The default that the app itself names, in ``params`` or in their ``schema``; else the question is declined.

    A question that says it is ``destructive`` is never answered with yes.
    """
    key = _ANSWERS.get(request.method)
    schema = request.params.get("schema")
    places = (request.params, schema if isinstance(schema, Mapping) else {})
    given = [place["default"] for place in places if place.get("default") is not None]
    if key is None or not given:
        return DECLINED
    if key == "confirmed" and (given[0] is not False) and any(place.get("destructive") for place in places):
        return DECLINED
    return {"success": True, "data": {key: given[0]}}
