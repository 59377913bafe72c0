"""Validation of parameters and answers against the JSON Schema of a capability.

The schema is the app's, so it is not trusted: references to addresses are not followed, patterns run on an engine
without backtracking, and depth, size and work are bounded before the validator runs (docs/faults.md 21 and 23). A
schema that is broken or out of bounds is the app's fault and never fails a call: validation is skipped with a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote

from ..errors import ProtocolError, UsageError, spelled
from ._find_content import MAX_DEPTH, Place, field_of, replace_values
from ._plain_text import redact_url, similar_names
from ._strict_json import MAX_REQUESTED, decode_json, encode_json, items_of, members_of

if TYPE_CHECKING:
    import jsonschema_rs

_NUMBERS = frozenset((int, float, bool, NoneType))
_LISTS = (list, tuple)
_TYPE_NAMES = ("string", "number", "integer", "boolean", "array", "object", "null")
_CLASSES: Mapping[str, type] = {"null": NoneType, "string": str}


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of the work for one schema and one value, since both are untrusted. Above them nothing is validated."""

    #: Of a schema as JSON.
    schema_bytes: int = 256 * 1024
    schema_values: int = 10_000
    patterns: int = 100
    #: Of one compiled pattern, and of all patterns of a schema (measured: 3 ms for each megabyte).
    pattern_bytes: int = 1 << 20
    all_pattern_bytes: int = 6 << 20
    #: Of a validated value.
    values: int = 100_000
    #: Of the validator (measured: below 0.1 µs a step, 1 to 2 µs to count it: 0.03 s on a slow machine).
    steps: int = 15_000
    #: Steps above which faults are not listed: an error costs up to 40 µs.
    listing_steps: int = 2_000
    #: Faults in one message.
    faults: int = 5
    #: Hints in one message.
    hints: int = 5
    #: Parameters that are examined for hints.
    params: int = 1000
    #: Schemas in the cache.
    cached: int = 64


_LIMITS = _Limits()
#: Characters of a text that count as one value.
_CHARS_OF_VALUE = 64


class NotChecked(Exception):
    """Reason for skipping the validation of a value."""


def shorten(text: str) -> str:
    """Cut out the middle: a validator's message begins with the value and ends with the rule."""
    if len(text) <= 130:
        return text
    return f"{text[:60]}…{text[-70:]}"


def count_values(tree: object, limit: int, what: str) -> int:
    """Raises :class:`NotChecked` above ``limit`` values and below 64 levels: a validator that follows 100,000 levels
    crashes the process. ``what`` names the tree in the message."""
    level: list[object] = [tree]
    size = 1
    depth = 0
    while level:
        inner: list[object] = []
        for node in level:
            if type(node) in _NUMBERS:
                continue
            if isinstance(node, dict):
                inner += node.values()
                size += sum(len(name) // _CHARS_OF_VALUE for name in node if isinstance(name, str))
            elif isinstance(node, _LISTS):
                inner += node
            elif isinstance(node, str):
                size += len(node) // _CHARS_OF_VALUE
        size += len(inner)
        # Checked before the loop over the next level, which may have millions of values.
        if size > limit:
            raise NotChecked(f"{what} has more than {limit:,} values")

        depth += 1
        # One level more: the leaves of the deepest level that is allowed.
        if depth > MAX_DEPTH + 1:
            raise NotChecked(f"{what} is nested deeper than {MAX_DEPTH} levels")
        level = inner
    return size


def references_and_patterns(schema: dict[str, object]) -> tuple[bool, int]:
    """Return whether a schema has references, and the number of its patterns."""
    has_references = False
    changes_base = False
    patterns = 0
    id_keyword = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
    for node in _objects_in(schema):
        if isinstance(node.get("pattern"), str):
            patterns += 1
        patterns += len(members_of(node.get("patternProperties")))
        if node is not schema and isinstance(node.get(id_keyword), str):
            changes_base = True
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = node.get(keyword)
            if isinstance(target, str):
                has_references = True
                _require_local_pointer(keyword, target)

    if patterns > _LIMITS.patterns:
        raise NotChecked(f"the schema has more than {_LIMITS.patterns} patterns")
    if has_references and changes_base:
        raise NotChecked("the schema has references and changes what they are relative to ($id)")
    return has_references, patterns


def _objects_in(schema: dict[str, object]) -> Iterator[dict[str, object]]:
    waiting: list[object] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            yield node


def _require_local_pointer(keyword: str, target: str) -> None:
    is_pointer = target == "#" or target.startswith("#/")
    if keyword != "$ref" or not is_pointer:
        raise NotChecked(f"{keyword} to {shorten(redact_url(target) or target)} is not followed")


def count_steps(schema: dict[str, object], data: object) -> int:
    """Return an upper bound of the validator's steps: pairs of a subschema and a value. A few references that name each
    other twice make 2^n steps."""
    waiting: list[tuple[object, object]] = [(schema, data)]
    steps = 0
    while waiting:
        node, value = waiting.pop()
        steps += 1
        if isinstance(node, dict):
            if isinstance(value, str) and "pattern" in node:
                steps += len(value) // _CHARS_OF_VALUE
            waiting += islice(_applied_subschemas(node, value, schema), _LIMITS.steps)
        if steps + len(waiting) > _LIMITS.steps:
            raise NotChecked("it would take too long")
    return steps


def _applied_subschemas(node: dict[str, object], value: object, root: object) -> Iterator[tuple[object, object]]:
    """Yield each with the part of ``value`` that it applies to. Work that applies no subschema is yielded as well, as
    steps with the subschema ``None``, so that it counts."""
    members = value if isinstance(value, dict) else {}
    items = value if isinstance(value, _LISTS) else ()
    for keyword, rule in node.items():
        match keyword, rule:
            # For the value itself.
            case "$ref", str():
                yield target_of(root, rule), value
            case "not" | "if" | "then" | "else", _:
                yield rule, value
            case "allOf" | "anyOf" | "oneOf", list():
                yield from ((subschema, value) for subschema in rule)
            case "dependentSchemas" | "dependencies", dict():
                yield from ((subschema, value) for subschema in rule.values())
            case "enum", list():
                # Comparisons with 16 members take as long as a step.
                yield from ((None, value) for _ in range(len(rule) // 16))

            # For the members of an object.
            case "properties", dict():
                yield from ((rule[name], member) for name, member in members.items() if name in rule)
            case "patternProperties", dict():
                yield from ((subschema, member) for subschema in rule.values() for member in members.values())
                # Matching a pattern takes time in proportion to the length of the name.
                steps_of_names = sum(len(name) // _CHARS_OF_VALUE * len(rule) for name in members)
                yield from ((None, None) for _ in range(steps_of_names))
            case "additionalProperties", _:
                named = members_of(node.get("properties"))
                yield from ((rule, member) for name, member in members.items() if name not in named)
            case "unevaluatedProperties", _:
                yield from ((rule, member) for member in members.values())
            case "propertyNames", _:
                yield from ((rule, name) for name in members)

            # For the items of a list.
            case "items" | "additionalItems" | "unevaluatedItems" | "contains", dict():
                yield from ((rule, item) for item in items)
            case "items" | "prefixItems", list():
                yield from zip(rule, items, strict=False)


def target_of(root: object, pointer: str) -> object:
    """Return the subschema at a pointer such as ``#/$defs/page`` (RFC 6901)."""
    node = root
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[name] if isinstance(node, dict) else node[int(name)]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError):
            raise NotChecked(f"$ref to {shorten(pointer)} leads nowhere") from None
    return node


#: Kinds of errors that are not faults of a value: mere annotations in newer drafts, and limits of the regex engine.
_IGNORED_KINDS = {"contentEncoding", "contentMediaType", "backtrackLimitExceeded", "regexEngineFailure"}
#: Keywords about an object or a list that do not depend on the values of its members.
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
    """Errors at or below the paths of binaries in ``content`` are not faults, nor are errors above them that a binary
    may have caused."""
    place = tuple(error.instance_path)
    kind = error.kind
    if kind.name in _IGNORED_KINDS:
        return False

    is_inside_content = any(place[: len(path)] == path for path in content)
    if is_inside_content:
        return False
    if content and not {"then", "else"}.isdisjoint(error.evaluation_path):
        # The result of the ``if`` may depend on content.
        return False
    contains_content = any(path[: len(place)] == place for path in content)
    if not contains_content:
        return True

    branches = _branches(kind)
    if branches:
        return all(any(is_fault(inner, content) for inner in branch) for branch in branches)
    return kind.name in _ABOUT_SHAPE


def _branches(kind: jsonschema_rs.ValidationErrorKind) -> list[list[jsonschema_rs.ValidationError]]:
    """Return the errors of each alternative of ``anyOf`` and ``oneOf``, if none fits."""
    import jsonschema_rs  # loaded already: the error comes from it

    match kind:
        case jsonschema_rs.ValidationErrorKind.AnyOf() | jsonschema_rs.ValidationErrorKind.OneOfNotValid():
            return kind.context
        case _:
            return []


def format_error(error: jsonschema_rs.ValidationError, content: Collection[Place]) -> str:
    """If no alternative fits, the message lists the first reason against each, at most three."""
    # A dict, since several alternatives may give the same reason.
    reasons: dict[str, None] = {}
    for branch in _branches(error.kind):
        first = next((inner for inner in branch if is_fault(inner, content)), None)
        if first is None:
            continue
        reason = shorten(first.message)
        below = field_of(tuple(first.instance_path[len(error.instance_path) :]))
        if below:
            reason = f"{below}: {reason}"
        reasons[reason] = None
    if not reasons:
        return shorten(error.message)

    max_reasons = 3
    listed = [*islice(reasons, max_reasons)]
    if len(reasons) > max_reasons:
        listed.append("…")
    return f"fits no alternative: {'; '.join(listed)}"


def is_file(schema: Mapping[str, object]) -> bool:
    """Return whether a parameter is a file, by the fields of its descriptor (docs/protocol.md 9.2)."""
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and {"content", "mimeType"} <= properties.keys()


def declared_parameters(
    schema: Mapping[str, object], above: str = "", level: int = 1
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield the place of each parameter, its schema, and whether it is required, down to the fourth level."""
    max_level = 4
    required = items_of(schema.get("required"))
    for name, inner in members_of(schema.get("properties")).items():
        declared = members_of(inner)
        yield f"{above}{name}", declared, name in required
        if level < max_level and not is_file(declared):
            yield from declared_parameters(declared, f"{above}{name}.", level + 1)


def misgiven_files(schema: Mapping[str, object], params: object) -> list[str]:
    """Return a hint if a parameter is text, most likely a path, where ``schema`` declares a file."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not isinstance(params, Mapping):
        return []
    for name, declared in islice(properties.items(), _LIMITS.params):
        if isinstance(params.get(name), str) and isinstance(declared, Mapping) and is_file(declared):
            forms = spelled("a pathlib.Path, bytes, an open file or a BinaryData")
            return [f"{str(name)[:80]!r} is a file: give {forms}"]
    return []


#: Keywords by which an object may have members that its ``properties`` do not list, unless their value is ``false``.
_OTHER_MEMBERS = frozenset(
    {
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "propertyNames",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "dependentSchemas",
        "dependencies",
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
    }
)


def unnamed_params(schema: Mapping[str, object], params: object) -> list[str]:
    """Return hints about members that ``schema`` does not name, if it has none of :data:`_OTHER_MEMBERS`."""
    hints = (_unnamed_hint(place, name, names) for place, name, names in _unnamed_members(schema, params))
    return list(islice(hints, _LIMITS.hints))


def _unnamed_hint(place: Place, name: str, names: list[str]) -> str:
    nearest = similar_names(name, names[:500], max_names=1)
    if nearest:
        advice = f"did you mean {field_of((*place, nearest[0]))!r}?"
    else:
        more = " …" if len(names) > 8 else ""
        advice = f"it has {', '.join(map(shorten, names[:8]))}{more}"
    member = shorten(field_of((*place, name)))
    return f"you gave {member!r}, which its inputSchema does not name; {advice}"


def _unnamed_members(schema: Mapping[str, object], params: object) -> Iterator[tuple[Place, str, list[str]]]:
    """Yield the place of an object, the name of an undeclared member, and the declared names."""
    waiting: list[tuple[Place, object, object]] = [((), schema, params)]
    while waiting:
        place, declared, value = waiting.pop()
        node = members_of(declared)
        properties = members_of(node.get("properties"))
        allows_others = any(node[key] is not False for key in _OTHER_MEMBERS & node.keys())
        # All apps accept the other fields of a file descriptor, too.
        if not properties or allows_others or is_file(node):
            continue

        required = [name for name in items_of(node.get("required")) if isinstance(name, str)]
        names = {*properties, *required}
        for name, member in members_of(value).items():
            if name in properties:
                waiting.append(((*place, name), properties[name], member))
            elif isinstance(name, str) and name not in names:
                yield place, name, [*properties]


def check_params(
    capability: str, schema: Mapping[str, object], params: object, content: Iterable[Place] = ()
) -> list[str]:
    """Check the ``params`` of a call against the ``inputSchema``. Returns a warning if validation was skipped.

    A required parameter with a ``default`` may be left out: generators of schemas list those, too. ``content`` are the
    paths of binaries: apps declare them as text, as an object, or not at all, so nothing at or below them is a fault.
    Raises :class:`~transports.errors.UsageError` with ``details`` ``{"path": "options.margin", "faults": [...]}``. The
    message also has the hints of :func:`.unnamed_params`, since a missing parameter may have been misspelt."""
    try:
        faults = [fault for fault in _find_faults(schema, params, content) if not _has_default(schema, fault)]
    except NotChecked as reason:
        return [f"{capability}: the parameters were not checked against inputSchema: {reason}"]
    if not faults:
        return []

    listed = [fault.message("params") for fault in faults]
    hints = [*misgiven_files(schema, params), *unnamed_params(schema, params)]
    if len(listed) == _LIMITS.faults:
        hints.insert(0, "there may be more faults")
    message = "; ".join((*listed, *hints))
    details = {"path": field_of(faults[0].place), "faults": listed}
    raise UsageError(f"{capability}: {message}", details=details)


def tool_arguments(tool: str, schema: Mapping[str, object], arguments: Mapping[str, object]) -> dict[str, Any]:
    """Check the arguments that a model gave to a ``tool`` of the kit itself, and return them.

    JSON Schema accepts ``1.0`` as an integer; such a number is returned as an :class:`int`. Objects and lists of which
    the schema says no more, such as the parameters for an app, are not checked."""
    arguments = repair_arguments(schema, arguments)
    unchecked = check_params(tool, schema, _outline(schema, arguments))
    if unchecked:
        raise UsageError(f"{unchecked[0]}; correct the arguments and call again")
    return cast("dict[str, Any]", _with_integers(schema, dict(arguments)))


def repair_arguments(schema: object, value: object) -> Any:
    """Leave out the nulls of optional members that must not be null, and read JSON where no text fits. Many clients and
    models write null for a member that they leave out, and a list as a text."""
    if not isinstance(schema, Mapping):
        return value

    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") and _refuses(schema, "string"):
        try:
            value = decode_json(value, max_values=MAX_REQUESTED)
        except ProtocolError:
            # The check of the arguments names it.
            return value

    if isinstance(value, list):
        return [repair_arguments(schema.get("items"), inner) for inner in value]
    properties = schema.get("properties")
    if not isinstance(value, Mapping) or not isinstance(properties, Mapping):
        return value

    required = items_of(schema.get("required"))
    present: dict[object, object] = {}
    for name, inner in value.items():
        member_schema = properties.get(name)
        if inner is None and name not in required and _refuses(member_schema, "null"):
            continue
        present[name] = repair_arguments(member_schema, inner)
    return present


def _refuses(schema: object, kind: Literal["null", "string"]) -> bool:
    """Return whether no null or no text fits a schema: by its type, its values or all of its alternatives."""
    rules = members_of(schema)
    kinds = rules.get("type")
    if not isinstance(kinds, list):
        kinds = [kinds]
    if all(declared in _TYPE_NAMES and declared != kind for declared in kinds):
        return True

    values = [rules["const"]] if "const" in rules else rules.get("enum")
    if isinstance(values, list) and not any(isinstance(value, _CLASSES[kind]) for value in values):
        return True
    branches = rules.get("anyOf", rules.get("oneOf"))
    return isinstance(branches, list) and all(_refuses(branch, kind) for branch in branches)


def _outline(schema: object, value: object) -> object:
    """Return the beginnings of texts, and members that have a schema: a whole file would be too large to be checked."""
    properties = members_of(schema).get("properties")
    items = members_of(schema).get("items")
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UsageError("an argument holds half of a surrogate pair; give whole characters") from None
            # The values that the schemas of the kit name are all shorter.
            return value[:64]
        case Mapping():
            if not isinstance(properties, Mapping):
                return {}
            return {name: _outline(properties.get(name), inner) for name, inner in value.items()}
        case list():
            if items is None:
                return []
            return [_outline(items, inner) for inner in value]
        case _:
            return value


def _with_integers(schema: object, value: object) -> object:
    rules = members_of(schema)
    if isinstance(value, float) and rules.get("type") == "integer":
        return int(value)
    properties = members_of(rules.get("properties"))
    if isinstance(value, dict) and properties:
        return {name: _with_integers(properties.get(name), inner) for name, inner in value.items()}
    if isinstance(value, list) and "items" in rules:
        return [_with_integers(rules["items"], inner) for inner in value]
    return value


def check_output(schema: Mapping[str, object], data: object, content: Iterable[Place] = ()) -> list[str]:
    """Return at most five warnings. Never raises, since an answer is not refused for its schema. ``content`` are the
    paths of binaries, which count as for :func:`check_params`."""
    try:
        return [f"outputSchema: {fault.message('data')}" for fault in _find_faults(schema, data, content)]
    except NotChecked as reason:
        return [f"the answer was not checked against outputSchema: {reason}"]


def check_value(schema: Mapping[str, object], value: object, name: str) -> list[str]:
    """Return at most five faults, with their places below ``name``; none if validation is skipped."""
    try:
        return [fault.message(name) for fault in _find_faults(schema, value, ())]
    except NotChecked:
        return []


def _has_default(schema: Mapping[str, object], fault: _Fault) -> bool:
    """Return whether a fault is a missing member that has a default."""
    if not fault.missing:
        return False
    subschema: object = schema
    for step in (*fault.place, fault.missing):
        if isinstance(step, int):
            subschema = members_of(subschema).get("items")
        else:
            subschema = members_of(members_of(subschema).get("properties")).get(step)
    return isinstance(subschema, Mapping) and "default" in subschema


@dataclass(frozen=True, slots=True)
class _Fault:
    place: Place
    text: str
    missing: str = ""

    def message(self, root: str) -> str:
        place = ".".join(filter(None, (root, field_of(self.place))))
        return f"{place}: {self.text}"


def fits_at(schema: Mapping[str, object], data: object, place: Place, content: Iterable[Place] = ()) -> bool:
    """Return whether nothing at ``place`` or below is a fault of ``data``. True if that cannot be checked."""
    try:
        faults = _find_faults(schema, data, content, limit=_LIMITS.params)
    except NotChecked:
        return True
    return all(fault.place[: len(place)] != place for fault in faults)


def _find_faults(
    schema: Mapping[str, object], data: object, content: Iterable[Place], limit: int = _LIMITS.faults
) -> list[_Fault]:
    if not schema:
        return []
    compiled = _validator_of(schema)

    # The validator sees null in the place of each binary.
    places = tuple(content)
    tree = replace_values(data, dict.fromkeys(places))
    values = count_values(tree, _LIMITS.values, "the value")
    # Without references, the validator takes at most a step for each pair of a value and a subschema.
    may_take_long = compiled.references or values * compiled.nodes > _LIMITS.steps
    steps = count_steps(compiled.schema, tree) if may_take_long else None

    try:
        if compiled.validator.is_valid(tree):
            return []
        if steps is None:
            steps = count_steps(compiled.schema, tree)
        if steps > _LIMITS.listing_steps:
            raise NotChecked("it does not fit, but is too large to list its faults")
        return list(islice(_unique_faults(compiled.validator, tree, places), limit))
    except ValueError as error:
        # A value outside JSON, or an integer with thousands of digits.
        raise NotChecked(shorten(str(error))) from None


def _unique_faults(validator: jsonschema_rs.Validator, tree: object, content: Collection[Place]) -> list[_Fault]:
    """Return all faults of a value that is not valid, each once: several alternatives may have the same."""
    # A dict keeps the order.
    faults: dict[_Fault, None] = {}
    for error in validator.iter_errors(tree):
        if is_fault(error, content):
            missing_member = getattr(error.kind, "property", "")
            fault = _Fault(tuple(error.instance_path), format_error(error, content), missing_member)
            faults[fault] = None
    return list(faults)


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: jsonschema_rs.Validator
    schema: dict[str, object]
    nodes: int
    references: bool


def _validator_of(schema: Mapping[str, object]) -> _Compiled:
    try:
        encoded = encode_json(schema)
    except (TypeError, ValueError) as error:
        raise NotChecked(f"the schema is not JSON: {error}") from None
    if len(encoded) > _LIMITS.schema_bytes:
        raise NotChecked(f"the schema takes {len(encoded):,} bytes, more than {_LIMITS.schema_bytes:,}")
    compiled = _compile(encoded)
    if isinstance(compiled, str):
        raise NotChecked(compiled)
    return compiled


@lru_cache(maxsize=_LIMITS.cached)
def _compile(encoded: bytes) -> _Compiled | str:
    """Return the validator of a schema, or the reason why there is none."""
    import jsonschema_rs  # late: a session loads it while its transport opens

    try:
        schema = decode_json(encoded)
        assert isinstance(schema, dict)
        nodes = count_values(schema, _LIMITS.schema_values, "the schema")
        references, patterns = references_and_patterns(schema)
        limit = min(_LIMITS.pattern_bytes, _LIMITS.all_pattern_bytes // max(patterns, 1))
        validator = jsonschema_rs.validator_for(
            schema,
            validate_formats=False,
            offline=True,
            # The linear engine has no look-around or back references, which need backtracking without a time bound.
            pattern_options=jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=limit),
        )
    except NotChecked as reason:
        return str(reason)
    except (ValueError, ProtocolError) as error:
        problem = shorten(str(getattr(error, "message", error)))
        # The library gives the same reason for a pattern over the limit as for a wrong one.
        too_large = ", or all patterns together are too large" if problem.endswith('is not a "regex"') else ""
        return f"the schema cannot be used: {problem}{too_large}"
    return _Compiled(validator, schema, nodes, references)
