"""A validator's errors as faults in words. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

import jsonschema_rs

from ...binary.detect import Place, field_of
from .limits import shorten

__all__ = ["format_error", "is_fault"]

#: What says nothing about an instance here: annotations by the newer drafts, and an engine's own troubles.
_NO_FAULTS = {"contentEncoding", "contentMediaType", "backtrackLimitExceeded", "regexEngineFailure"}
#: What is true of an object or a list whatever stands in it.
_OF_SHAPE = {
    "type",
    "required",
    "additionalProperties",
    "additionalItems",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "falseSchema",
}


def is_fault(error: jsonschema_rs.ValidationError, content: Collection[Place]) -> bool:
    """Whether ``error`` is a fault wherever it does not come from how content is declared."""
    place, kind = tuple(error.instance_path), error.kind
    if kind.name in _NO_FAULTS:
        return False
    if any(place[: len(path)] == path for path in content):
        return False
    if content and not {"then", "else"}.isdisjoint(error.evaluation_path):
        return False  # an ``if`` may have looked at content
    if not any(path[: len(place)] == place for path in content):
        return True
    if branches := _branches(kind):
        return all(any(is_fault(one, content) for one in branch) for branch in branches)
    return kind.name in _OF_SHAPE


def _branches(kind: jsonschema_rs.ValidationErrorKind) -> list[list[jsonschema_rs.ValidationError]]:
    """The errors of every alternative, where none fits."""
    match kind:
        case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
            return kind.context
        case _:
            return []


def format_error(error: jsonschema_rs.ValidationError, content: Collection[Place]) -> str:
    """The fault in words; where several alternatives exist, the first reason against each of them."""
    reasons: dict[str, None] = {}
    for branch in _branches(error.kind):
        for one in islice((one for one in branch if is_fault(one, content)), 1):
            below = field_of(tuple(one.instance_path[len(error.instance_path) :]))
            reasons[f"{below}: {shorten(one.message)}" if below else shorten(one.message)] = None
    if not reasons:
        return shorten(error.message)
    return f"fits no alternative: {'; '.join(islice(reasons, 3))}{'; …' if len(reasons) > 3 else ''}"
