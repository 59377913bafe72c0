"""Generator of parameters from a capability's ``inputSchema``: the smallest valid ones.

Existing generators are for property tests: their values are random and hold texts that forms would refuse, and
hypothesis-jsonschema 0.23 does not run under hypothesis 6.170. A check needs the same few inputs each time. So this
module generates one value and validates it with the real validator. Authors of apps can specify other values as
``examples`` in the schema.
"""

from __future__ import annotations

import base64
import copy
import functools
import math
from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from ...protocol._params import prepare_params
from ...protocol._strict_json import items_of, members_of
from ...protocol.binary import BinaryData
from ...protocol.schema import check_output, check_params

_TEXT = "abp"
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_PDF = b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"
_FORMATS = {
    "date": "2024-01-31",
    "date-time": "2024-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "abp@example.org",
    "uri": "https://example.org/",
    "url": "https://example.org/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.org",
    "color": "#336699",
}
#: Texts that are tried for a schema with a pattern or a length.
_CANDIDATES = (_TEXT, "ABP", "a", "A", "1", "10", "2024", "en", "en-GB", "EUR", "a-1", "a1", "1.0", "1.0.0", "abp.txt")
_TYPES = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))
#: Values of a wrong type, by the declared type.
_WRONG_VALUES: Mapping[str, object] = {
    "string": 12345,
    "integer": _TEXT,
    "number": _TEXT,
    "boolean": _TEXT,
    "array": _TEXT,
}


class CannotGenerate(Exception):
    """Reason why no parameters could be generated from a schema."""


def generated_params(name: str, schema: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the schema's ``examples``, at most five. Without examples it is one object with only the required
    parameters: each the first of its ``examples`` or ``enum``, its ``const`` or ``default``, or the smallest value of
    its type. Binary parameters are a small PNG, PDF or text. Raises :class:`CannotGenerate`."""
    candidates: list[object] = [{}]
    examples = items_of(schema.get("examples"))
    if examples:
        candidates = copy.deepcopy(examples[:5])
    elif schema:
        try:
            candidates = [_Sampler(schema).sample(schema, "object")]
        except (TypeError, ValueError, OverflowError):
            # Of a keyword whose value has another type; the check schema.valid names it.
            raise CannotGenerate("its inputSchema is not valid") from None

    valid: list[dict[str, object]] = []
    for params in candidates:
        if not isinstance(params, dict):
            raise CannotGenerate("its parameters are not an object")
        prepared, content = prepare_params(params)
        try:
            check_params(name, schema, prepared, [file.path for file in content])
        except UsageError as error:
            raise CannotGenerate(
                f"no parameters could be made from its inputSchema ({error.message}); give `examples`"
            ) from error
        valid.append(params)
    return valid


def without_required(
    schema: Mapping[str, object], params: Mapping[str, object]
) -> tuple[str, dict[str, object]] | None:
    for name in items_of(schema.get("required")):
        if isinstance(name, str) and name in params:
            return name, {key: value for key, value in params.items() if key != name}
    return None


def with_wrong_type(schema: Mapping[str, object], params: Mapping[str, object]) -> tuple[str, dict[str, object]] | None:
    """Return the name of a parameter and ``params`` with a value of a wrong type; ``None`` if none has a type."""
    for name, inner in members_of(schema.get("properties")).items():
        declared = members_of(inner)
        wrong_value = _WRONG_VALUES.get(str(declared.get("type")))
        has_fixed_values = "enum" in declared or "const" in declared
        if wrong_value is not None and not has_fixed_values:
            return name, {**params, name: wrong_value}
    return None


def _suggested_values(schema: Mapping[str, object]) -> list[object]:
    for key in ("examples", "enum"):
        values = items_of(schema.get(key))
        if values:
            return values
    return [schema[key] for key in ("const", "default") if key in schema]


class _Sampler:
    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        # An app may ask for a list of any length, and references within references multiply.
        self._values_left = 1000

    def sample(self, schema: object, hint: str, depth: int = 0) -> object:
        """``schema`` is a part of the root at ``depth``. ``hint`` is the name of the property, for naming files."""
        if schema is False:
            raise CannotGenerate("its inputSchema allows no value")
        if depth > 12:
            raise CannotGenerate("its inputSchema is nested too deeply")
        if self._values_left == 0:
            raise CannotGenerate("its inputSchema requires too many values; give `examples`")
        self._values_left -= 1
        if not isinstance(schema, Mapping):
            return _TEXT

        pointer = schema.get("$ref")
        if isinstance(pointer, str):
            return self.sample(_resolve_pointer(self._root, pointer), hint, depth + 1)

        suggested = _suggested_values(schema)
        if suggested:
            return copy.deepcopy(suggested[0])

        parts = schema.get("allOf")
        if isinstance(parts, list):
            merged = functools.reduce(_merge_schemas, parts, _without_keyword(schema, "allOf"))
            return self.sample(merged, hint, depth + 1)
        for keyword in ("oneOf", "anyOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list):
                return self._sample_first(branches, _without_keyword(schema, keyword), hint, depth)

        return self._sample_type(schema, hint, depth)

    def _sample_first(self, branches: list[object], base: Mapping[str, object], hint: str, depth: int) -> object:
        reason = CannotGenerate("its inputSchema has no alternatives")
        for branch in branches:
            merged = False if branch is False else _merge_schemas(base, branch)
            try:
                return self.sample(merged, hint, depth + 1)
            except CannotGenerate as error:
                reason = error
        raise reason

    def _sample_type(self, schema: Mapping[str, object], hint: str, depth: int) -> object:
        match _type_of(schema):
            case "object":
                return self._sample_object(schema, hint, depth)
            case "array":
                return self._sample_array(schema, hint, depth)
            case "integer" | "number":
                return _sample_number(schema)
            case "boolean":
                return False
            case "null":
                return None
        return _sample_text(schema)

    def _sample_object(self, schema: Mapping[str, Any], hint: str, depth: int) -> object:
        properties = members_of(schema.get("properties"))
        if {"content", "mimeType"} <= set(properties):
            return _sample_binary(properties, hint)
        required = [name for name in items_of(schema.get("required")) if isinstance(name, str)]
        return {name: self.sample(properties.get(name, {}), name, depth + 1) for name in required}

    def _sample_array(self, schema: Mapping[str, Any], hint: str, depth: int) -> object:
        if schema.get("maxItems") == 0:
            return []
        length = max(int(schema.get("minItems", 1)), 1)
        return [self.sample(schema.get("items", {}), hint, depth + 1) for _ in range(length)]


def _without_keyword(schema: Mapping[str, object], keyword: str) -> Mapping[str, object]:
    return {key: value for key, value in schema.items() if key != keyword}


def _merge_schemas(base: Mapping[str, object], more: object) -> Mapping[str, object]:
    """For keys other than ``properties`` and ``required``, ``more`` takes precedence."""
    if not isinstance(more, Mapping):
        return base
    merged: dict[str, Any] = {**base, **more}
    if "properties" in base and "properties" in more:
        merged["properties"] = {**members_of(base["properties"]), **members_of(more["properties"])}
    required = [*items_of(base.get("required")), *items_of(more.get("required"))]
    if required:
        merged["required"] = required
    return merged


def _resolve_pointer(root: Mapping[str, object], pointer: str) -> object:
    node: object = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        node = members_of(node).get(step.replace("~1", "/").replace("~0", "~"))
    if not pointer.startswith("#") or node is None:
        raise CannotGenerate(f"its inputSchema refers to {pointer[:60]!r}")
    return node


def _type_of(schema: Mapping[str, object]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if isinstance(kind, str) and kind in _TYPES:
        return kind
    for keys, implied in (
        ({"properties", "required"}, "object"),
        ({"items"}, "array"),
        ({"minimum", "maximum"}, "number"),
    ):
        if keys & set(schema):
            return implied
    return "string"


def _sample_binary(properties: Mapping[str, object], hint: str) -> BinaryData:
    declared = members_of(properties["mimeType"])
    allowed = [declared.get("const"), *items_of(declared.get("enum")), *items_of(declared.get("examples"))]
    mime_type = next((name for name in allowed if isinstance(name, str)), "image/png")
    if mime_type.startswith("text/"):
        return BinaryData.from_bytes(_TEXT.encode(), mime_type=mime_type, filename=f"{hint}.txt")
    if mime_type == "application/pdf":
        return BinaryData.from_bytes(_PDF, mime_type=mime_type, filename=f"{hint}.pdf")
    return BinaryData.from_bytes(_PNG, mime_type="image/png", filename=f"{hint}.png")


def _sample_text(schema: Mapping[str, Any]) -> str:
    shortest = schema.get("minLength", 0)
    longest = schema.get("maxLength", math.inf)
    if shortest > 10_000:
        raise CannotGenerate("its inputSchema requires a text that is too long; give `examples`")
    text_of_format = _FORMATS.get(schema.get("format", ""))
    if text_of_format is not None:
        candidates = [text_of_format]
    else:
        # Short texts are repeated up to the minimum length.
        candidates = [(text * max(shortest, 1))[: max(len(text), shortest)] for text in _CANDIDATES]
        candidates.append("")

    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        # This validator is safe for untrusted patterns. A pattern that it does not support matches nothing.
        candidates = [
            text for text in (*candidates, *_FORMATS.values()) if not check_output({"pattern": pattern}, text)
        ]
    for text in candidates:
        if shortest <= len(text) <= longest:
            return text
    raise CannotGenerate("its inputSchema asks for a text that could not be made; give `examples`")


def _sample_number(schema: Mapping[str, Any]) -> float:
    """Return 1, or the number nearest to it that fits the limits and the step of a schema."""
    is_integer = _type_of(schema) == "integer"
    low = schema.get("minimum", -math.inf)
    high = schema.get("maximum", math.inf)
    step = schema.get("multipleOf")
    # The distance from an exclusive limit.
    gap = 0.5
    if is_integer:
        step = step or 1
        gap = 1.0
    if "exclusiveMinimum" in schema:
        low = max(low, schema["exclusiveMinimum"] + gap)
    if "exclusiveMaximum" in schema:
        high = min(high, schema["exclusiveMaximum"] - gap)

    value = min(max(1, low), high)
    if step:
        value = math.ceil(value / step) * step
    return int(value) if is_integer else value
