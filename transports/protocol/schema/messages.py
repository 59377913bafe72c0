"""The errors of the validator: which are faults of a value, and their messages. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING

from ...binary.detect import Place, field_of
from .limits import shorten

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["format_error", "is_fault"]

#: Kinds of errors that are no fault of a value: keywords that newer drafts only annotate with, and an engine's limits.
_IGNORED_KINDS = {"contentEncoding", "contentMediaType", "backtrackLimitExceeded", "regexEngineFailure"}
#: Keywords about an object or a list that hold whatever its members are.
_ABOUT_SHAPE = {
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
    """Return whether ``error`` is a fault of the value. It is none at or below the paths in ``content``, where binaries
    stand, nor above them if what stands there may have caused it."""
    place, kind = tuple(error.instance_path), error.kind
    if kind.name in _IGNORED_KINDS:
        return False
    if any(place[: len(path)] == path for path in content):
        return False
    if content and not {"then", "else"}.isdisjoint(error.evaluation_path):
        return False  # an ``if`` may have looked at content
    if not any(path[: len(place)] == place for path in content):
        return True
    if branches := _branches(kind):
        return all(any(is_fault(one, content) for one in branch) for branch in branches)
    return kind.name in _ABOUT_SHAPE


def _branches(kind: jsonschema_rs.ValidationErrorKind) -> list[list[jsonschema_rs.ValidationError]]:
    """Return the errors of each alternative of ``anyOf`` and ``oneOf``, if none fits."""
    import jsonschema_rs  # there already: it made the error

    match kind:
        case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
            return kind.context
        case _:
            return []


def format_error(error: jsonschema_rs.ValidationError, content: Collection[Place]) -> str:
    """Return the message of a fault, shortened. If there are alternatives and none fits, it has the first reason
    against each, at most three."""
    reasons: dict[str, None] = {}
    for branch in _branches(error.kind):
        for one in islice((one for one in branch if is_fault(one, content)), 1):
            below = field_of(tuple(one.instance_path[len(error.instance_path) :]))
            reasons[f"{below}: {shorten(one.message)}" if below else shorten(one.message)] = None
    if not reasons:
        return shorten(error.message)
    return f"fits no alternative: {'; '.join(islice(reasons, 3))}{'; …' if len(reasons) > 3 else ''}"
