"""Parameters and answers against the JSON Schema that a capability declares for them. No I/O.

The schema is the app's, so it is not trusted: it reaches no address, its patterns run on an engine without
backtracking, and how deep, how large and how much work it may be is bounded before the validator sees it
(FAULTS 21 and 23). A schema that is broken or out of bounds is the app's fault and never fails a call: it is not
checked, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote

import jsonschema_rs

from .detect import MAX_DEPTH, Place, field_of, replace
from .errors import ProtocolError, UsageError, redact_url
from .messages import decode_json, encode_json

__all__ = ["check_params", "differences"]

#: A schema above any of these is not checked. A pattern may take half a megabyte once compiled.
_MAX_ENCODED = 256 * 1024
_MAX_NODES = 10_000
_MAX_PATTERNS = 100
#: Values (and 64 characters of text count as one) of an instance that is checked.
_MAX_VALUES = 100_000
#: Steps of the validator (measured: below 0.1 µs) and, as an error costs up to 40 µs, where faults are listed.
_MAX_STEPS = 50_000
_MAX_LISTED = 2_000

_MOST = 5
_HEAD, _TAIL = 60, 70


def check_params(
    capability: str, schema: Mapping[str, object], params: object, content: Iterable[Place] = ()
) -> list[str]:
    """Check the ``params`` of a call against the capability's ``inputSchema``.

    ``content`` are the places of binaries (:func:`~transports.params.outgoing`): apps declare those as text, as an
    object, or not at all, so nothing at or below them is a fault.

    Raises :class:`~transports.errors.UsageError` with ``details`` ``{"path": "options.margin", "faults": [...]}``; at
    most five faults are listed. Returns warnings: why the schema was not checked.
    """
    try:
        faults = _faults(schema, params, content)
    except _Unchecked as reason:
        return [f"{capability}: the parameters were not checked against inputSchema: {reason}"]
    if faults:
        listed = [fault.told("params") for fault in faults]
        more = f"; and {'at least ' * (len(listed) == _MOST)}{len(listed) - 1} more" if len(listed) > 1 else ""
        details = {"path": field_of(faults[0].place), "faults": listed}
        raise UsageError(f"{capability}: {listed[0]}{more}", details=details)
    return []


def differences(schema: Mapping[str, object], data: object, content: Iterable[Place] = ()) -> list[str]:
    """How an answer's ``data`` differs from the capability's ``outputSchema``, as warnings, at most five.

    ``content`` are the places of binaries (:func:`~transports.detect.find`), which count as for :func:`check_params`.
    """
    try:
        return [f"outputSchema: {fault.told('data')}" for fault in _faults(schema, data, content)]
    except _Unchecked as reason:
        return [f"the answer was not checked against outputSchema: {reason}"]


class _Unchecked(Exception):
    """Why nothing can be said."""


@dataclass(frozen=True, slots=True)
class _Fault:
    place: Place
    text: str

    def told(self, root: str) -> str:
        return f"{'.'.join(filter(None, (root, field_of(self.place))))}: {self.text}"


def _faults(schema: Mapping[str, object], data: object, content: Iterable[Place]) -> list[_Fault]:
    """The first faults of ``data``, none if it is valid."""
    if not schema:
        return []
    places = tuple(content)
    try:
        encoded = encode_json(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise _Unchecked(f"the schema is no JSON: {error}") from None
    if len(encoded) > _MAX_ENCODED:
        raise _Unchecked(f"the schema takes {len(encoded):,} bytes, more than {_MAX_ENCODED:,}")
    compiled = _compiled(encoded)
    if isinstance(compiled, str):
        raise _Unchecked(compiled)
    tree = replace(data, dict.fromkeys(places))
    values = _size_of(tree, _MAX_VALUES, "the value")
    if compiled.references or values * compiled.nodes > _MAX_STEPS:
        _steps(compiled.schema, tree)
    try:
        if compiled.validator.is_valid(tree):
            return []
        if _steps(compiled.schema, tree) > _MAX_LISTED:
            raise _Unchecked("it does not fit, but is too large to say where")
        errors = (error for error in compiled.validator.iter_errors(tree) if _counts(error, places))
        faults = dict.fromkeys(_Fault(tuple(error.instance_path), _told(error, places)) for error in errors)
        return list(islice(faults, _MOST))
    except ValueError as error:  # a value that is no JSON, or an integer with thousands of digits
        raise _Unchecked(_cut(str(error))) from None


# --- the schema: bounded, then compiled -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: jsonschema_rs.Validator
    schema: dict[str, object]
    nodes: int
    references: bool


@lru_cache(maxsize=64)
def _compiled(encoded: bytes) -> _Compiled | str:
    """The validator of a schema, or why there is none."""
    try:
        schema = decode_json(encoded)
        assert isinstance(schema, dict)
        nodes = _size_of(schema, _MAX_NODES, "the schema")
        references = _surveyed(schema)
        validator = jsonschema_rs.validator_for(
            schema,
            validate_formats=False,
            offline=True,
            # The linear engine, without look-around and back references: those backtrack, without a bound in time.
            pattern_options=jsonschema_rs.RegexOptions(size_limit=1024 * 1024, dfa_size_limit=1024 * 1024),
        )
    except _Unchecked as reason:
        return str(reason)
    except (ValueError, ProtocolError) as error:
        return f"the schema cannot be used: {_cut(str(getattr(error, 'message', error)))}"
    return _Compiled(validator, schema, nodes, references)


def _size_of(tree: object, limit: int, what: str) -> int:
    """How many values ``tree`` has. A nest of 100,000 ends the process if the validator follows it."""
    level: list[object] = [tree]
    size = depth = 0
    while level:
        size += len(level)
        inner: list[object] = []
        for node in level:
            if isinstance(node, dict):
                inner += node.values()
                size += sum(len(name) >> 6 for name in node if isinstance(name, str))
            elif isinstance(node, list | tuple):
                inner += node
            elif isinstance(node, str):
                size += len(node) >> 6
        if size > limit:
            raise _Unchecked(f"{what} has more than {limit:,} values")
        depth += 1
        if depth > MAX_DEPTH + 1:  # the leaves of the deepest level that is allowed
            raise _Unchecked(f"{what} is nested deeper than {MAX_DEPTH} levels")
        level = inner
    return size


def _surveyed(schema: dict[str, object]) -> bool:
    """Whether there are references. Those that are followed are pointers into the schema itself."""
    waiting: list[object] = [schema]
    references = rebased = False
    patterns = 0
    identity = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            patterns += isinstance(node.get("pattern"), str)
            several = node.get("patternProperties")
            patterns += len(several) if isinstance(several, dict) else 0
            rebased = rebased or (node is not schema and isinstance(node.get(identity), str))
            for key in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(target := node.get(key), str):
                    references = True
                    if key != "$ref" or not (target == "#" or target.startswith("#/")):
                        raise _Unchecked(f"{key} to {_cut(redact_url(target) or target)} is not followed")
    if patterns > _MAX_PATTERNS:
        raise _Unchecked(f"the schema has more than {_MAX_PATTERNS} patterns")
    if references and rebased:
        raise _Unchecked("the schema has references and changes what they are relative to ($id)")
    return references


# --- how much work it is ----------------------------------------------------------------------------------------------

_SAME = {"not", "if", "then", "else"}
_SAME_LISTS = {"allOf", "anyOf", "oneOf"}
_SAME_MAPS = {"dependentSchemas", "dependencies"}
_EACH_MEMBER = {"additionalProperties", "unevaluatedProperties"}
_EACH_ITEM = {"items", "additionalItems", "unevaluatedItems", "contains"}
_BY_INDEX = {"items", "prefixItems"}


def _steps(schema: dict[str, object], data: object) -> int:
    """How many pairs of a subschema and a value the validator meets, at most: a few references that name each other
    twice are 2^n of them. Raises :class:`_Unchecked` above the limit."""
    waiting: list[tuple[object, object]] = [(schema, data)]
    steps = 0
    while waiting:
        node, value = waiting.pop()
        steps += 1
        if isinstance(node, dict):
            if isinstance(value, str) and "pattern" in node:
                steps += len(value) >> 6
            waiting += _applied(node, value, schema)
        if steps + len(waiting) > _MAX_STEPS:
            raise _Unchecked("it would take too long")
    return steps


def _applied(node: dict[str, object], value: object, root: object) -> Iterator[tuple[object, object]]:
    """The subschemas of ``node``, each with the part of ``value`` that it is about."""
    members = value if isinstance(value, dict) else {}
    items = value if isinstance(value, list | tuple) else ()
    for key, inner in node.items():
        if key == "$ref" and isinstance(inner, str):
            yield _target(root, inner), value
        elif key in _SAME:
            yield inner, value
        elif key in _EACH_MEMBER:
            named = node.get("properties") if key == "additionalProperties" else None
            known = named if isinstance(named, dict) else {}
            yield from ((inner, member) for name, member in members.items() if name not in known)
        elif key == "propertyNames":
            yield from ((inner, name) for name in members)
        elif isinstance(inner, dict):
            if key == "properties":
                yield from ((inner[name], member) for name, member in members.items() if name in inner)
            elif key == "patternProperties":
                yield from ((one, member) for one in inner.values() for member in members.values())
                yield from ((None, None) for name in members for _ in range((len(name) >> 6) * len(inner)))
            elif key in _SAME_MAPS:
                yield from ((one, value) for one in inner.values())
            elif key in _EACH_ITEM:
                yield from ((inner, item) for item in items)
        elif isinstance(inner, list):
            if key in _SAME_LISTS:
                yield from ((one, value) for one in inner)
            elif key in _BY_INDEX:
                yield from zip(inner, items, strict=False)
            elif key == "enum":
                yield from ((None, value) for _ in range(len(inner) >> 4))


def _target(root: object, pointer: str) -> object:
    """What a pointer such as ``#/$defs/page`` leads to (RFC 6901)."""
    node = root
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[name] if isinstance(node, dict) else node[int(name)]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError):
            raise _Unchecked(f"$ref to {_cut(pointer)} leads nowhere") from None
    return node


# --- the faults -------------------------------------------------------------------------------------------------------

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


def _counts(error: jsonschema_rs.ValidationError, content: Collection[Place]) -> bool:
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
        return all(any(_counts(one, content) for one in branch) for branch in branches)
    return kind.name in _OF_SHAPE


def _branches(kind: jsonschema_rs.ValidationErrorKind) -> list[list[jsonschema_rs.ValidationError]]:
    """The errors of every alternative, where none fits."""
    match kind:
        case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
            return kind.context
        case _:
            return []


def _told(error: jsonschema_rs.ValidationError, content: Collection[Place]) -> str:
    """The fault in words; where several alternatives exist, the first reason against each of them."""
    reasons: dict[str, None] = {}
    for branch in _branches(error.kind):
        for one in islice((one for one in branch if _counts(one, content)), 1):
            below = field_of(tuple(one.instance_path[len(error.instance_path) :]))
            reasons[f"{below}: {_cut(one.message)}" if below else _cut(one.message)] = None
    if not reasons:
        return _cut(error.message)
    return f"fits no alternative: {'; '.join(islice(reasons, 3))}{'; …' if len(reasons) > 3 else ''}"


def _cut(text: str) -> str:
    """``text`` without its middle: a message begins with the value and ends with the rule."""
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}…{text[-_TAIL:]}"
