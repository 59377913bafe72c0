"""Parameters and answers against what a capability declares of them, also where the declaration is hostile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.listener import listening
from tests.support.rows import each_row
from transports.errors import UsageError
from transports.protocol import schema as schemas
from transports.protocol._params import prepare_params
from transports.protocol._strict_json import decode_json, encode_json
from transports.protocol.schema import check_output, check_params, unnamed_params

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
EXPORT: dict[str, object] = {
    "type": "object",
    "properties": {
        "format": {"enum": ["A4", "Letter"]},
        "options": {
            "type": "object",
            "properties": {"margin": {"type": "number", "minimum": 0}, "pages": {"items": {"type": "integer"}}},
            "additionalProperties": False,
        },
        "file": {"type": "string", "maxLength": 10},
    },
    "required": ["format"],
}


def refused(schema: Mapping[str, object], params: object, *content: tuple[str | int, ...]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        check_params("export.pdf", schema, params, content)
    return caught.value


# --- what is a fault --------------------------------------------------------------------------------------------------


def test_schema_error_names_path_of_fault() -> None:
    error = refused(EXPORT, {"format": "A4", "options": {"margin": -1}})
    fault = "params.options.margin: -1 is less than the minimum of 0"
    assert (error.code, error.message) == ("INVALID_PARAMS", f"export.pdf: {fault}")
    assert error.details == {"path": "options.margin", "faults": [fault]}
    error = refused(EXPORT, {"fromat": "A4", "options": {"margn": 1}})
    words = "which its inputSchema does not name; did you mean"
    assert error.message == (
        'export.pdf: params: "format" is a required property; '
        "params.options: Additional properties are not allowed ('margn' was unexpected); "
        f"you gave 'fromat', {words} 'format'?; you gave 'options.margn', {words} 'options.margin'?"
    )


def test_at_most_five_errors_are_listed() -> None:
    error = refused(EXPORT, {"format": "A4", "options": {"pages": ["x"] * 9}})
    assert error.details["faults"] == [f'params.options.pages.{n}: "x" is not of type "integer"' for n in range(5)]
    assert error.message.endswith("; there may be more faults") and error.message.count("params") == 5
    two = refused(EXPORT, {"options": 1})
    faults: Any = two.details["faults"]
    assert two.message == f"export.pdf: {'; '.join(faults)}" and len(faults) == 2


def test_path_in_place_of_file_error_says_how_to_pass_file() -> None:
    file = {"type": "object", "properties": {"content": {}, "mimeType": {}}}
    schema = {"properties": {"image": file, "note": {"type": "object"}}}
    hint = "; 'image' is a file: give a pathlib.Path, bytes, an open file or a BinaryData"
    assert refused(schema, {"image": "photo.png"}).message.endswith(f'"photo.png" is not of type "object"{hint}')
    for params in ({"image": 5}, {"note": "photo.png"}):
        assert hint not in refused(schema, params).message


@each_row(
    ("schema", "params", "fault"),
    [
        (EXPORT, {}, 'params: "format" is a required property'),
        (EXPORT, [], 'params: [] is not of type "object"'),
        ({"type": "string"}, {}, 'params: {} is not of type "string"'),
        ({"properties": {"a.b": {"type": "string"}}}, {"a.b": 1}, 'params.a\\.b: 1 is not of type "string"'),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            {"a": 1},
            'params.a: fits no alternative: 1 is not of type "string"; 1 is not of type "null"',
        ),
        (
            {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["b"]}]},
            {"a": 1},
            'params: fits no alternative: a: 1 is not of type "string"; "b" is a required property',
        ),
        ({"allOf": [{"required": ["a"]}] * 3}, {}, 'params: "a" is a required property'),
        (
            {"properties": {"n": {"$ref": "#"}}, "additionalProperties": False},
            {"n": {"n": {"m": 1}}},
            "params.n.n: Additional properties are not allowed ('m' was unexpected)",
        ),
        (
            {"$defs": {"a/b~%": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a~1b~0%25"}}},
            {"x": 1},
            'params.x: 1 is not of type "string"',
        ),
    ],
)
def test_faults(schema: Mapping[str, object], params: object, fault: str) -> None:
    assert refused(schema, params).details["faults"] == [fault]


@each_row(
    ("schema", "params"),
    [
        ({}, {"a": object()}),
        (EXPORT, {"format": "A4", "unknown": 1}),
        ({"properties": {"a": {"format": "email", "x-unknown": 7}}}, {"a": "none"}),
        ({"$schema": DRAFT_7, "anyOf": [{"properties": {"a": {"format": "email"}}}]}, {"a": "none"}),
        ({"$schema": DRAFT_7, "properties": {"a": {"contentEncoding": "base64"}}}, {"a": "!"}),
    ],
)
def test_params_matching_schema_are_accepted(schema: Mapping[str, object], params: object) -> None:
    assert check_params("a", schema, params) == []


def test_json_schema_draft_defaults_to_newest() -> None:
    items = {"properties": {"a": {"items": [{"type": "string"}]}}}
    assert "cannot be used" in check_params("a", items, {"a": [1]})[0]  # a list here is of the older drafts
    assert refused({"$schema": DRAFT_7, **items}, {"a": [1]}).details["path"] == "a.0"


def test_values_in_schema_errors_are_truncated() -> None:
    error = refused(EXPORT, {"format": "A4", "file": "QUJD" * 100_000})
    assert len(error.message) < 200 and error.message.endswith("is longer than 10 characters")
    assert error.message.count("QUJD") < 30
    assert len(refused({"properties": {"a": {"enum": ["x" * 50] * 50}}}, {"a": {"b": "y" * 5000}}).message) < 200


# --- what the schema does not name -----------------------------------------------------------------------------------

OPEN: dict[str, object] = {"properties": {"format": {}}, "additionalProperties": True}


@each_row(
    ("schema", "params", "hints"),
    [
        (EXPORT, {"format": "A4", "Fromat": 1}, ["you gave 'Fromat', {}; did you mean 'format'?"]),
        (EXPORT, {"format": "A4", "zoom": 1}, ["you gave 'zoom', {}; it has format, options, file"]),
        (EXPORT, {"options": {"margn": 1}}, ["you gave 'options.margn', {}; did you mean 'options.margin'?"]),
        (EXPORT, {"format": "A4", **{f"unknown{n}": n for n in range(9)}}, 5),
        (OPEN, {"fromat": 1}, []),
        ({"properties": {"format": {}}, "additionalProperties": {"type": "number"}}, {"fromat": 1}, []),
        ({"properties": {"format": {}}, "patternProperties": {"^x-": {}}}, {"fromat": 1}, []),
        ({"properties": {"format": {}}, "anyOf": [{"properties": {"html": {}}}]}, {"html": 1}, []),
        ({"properties": {"format": {}}, "required": ["html"]}, {"html": 1}, []),
        ({"properties": {"format": OPEN}}, {"format": {"fromat": 1}}, []),
        ({"properties": {"image": {"properties": {"content": {}, "mimeType": {}}}}}, {"image": {"size": 1}}, []),
        ({"properties": {"a": 1, "b": {"required": 7, "allOf": [None], "$ref": "#/no"}}}, {"a": {"x": 1}}, 0),
        ({"properties": {f"p{n}": {} for n in range(9000)}}, {"p1": {"x": 1}, "x": 1}, 1),
    ],
)
def test_unknown_parameter_gets_hint(schema: Mapping[str, object], params: object, hints: list[str] | int) -> None:
    found = unnamed_params(schema, params)
    if isinstance(hints, list):
        assert found == [hint.format("which its inputSchema does not name") for hint in hints]
    else:
        assert len(found) == hints


# --- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1-12d")
@each_row(
    "declared",
    [
        {"type": "string", "pattern": "^[A-Z]$", "maxLength": 3},
        {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content", "filename"]},
        {"type": "array"},
        {"$ref": "#/$defs/other"},
        {"const": 7},
        False,
        {},
    ],
)
def test_content_matches_any_declared_schema(declared: object) -> None:
    properties = {"file": declared, "n": {"type": "integer"}}
    schema = {"properties": properties, "additionalProperties": False, "$defs": {"other": {"type": "boolean"}}}
    for given_ in (b"GIF89a", {"content": b"GIF89a", "mimeType": "image/gif", "note": 1}):
        params, content = prepare_params({"file": given_, "n": 1})
        places = [found.path for found in content]
        assert check_params("a", schema, params, places) == []
        assert refused(schema, {**dict(params), "n": "x"}, *places).details["path"] == "n"  # type: ignore[call-overload]
        assert refused(schema, {**dict(params), "m": 1}, *places).details["path"] == ""  # type: ignore[call-overload]


@each_row(
    "declared",
    [
        {"anyOf": [{"properties": {"file": {"type": "string"}}}, {"required": ["url"]}]},
        {"oneOf": [{"properties": {"file": {"type": "string"}}}, {"properties": {"file": {"type": "object"}}}]},
        {"oneOf": [{"properties": {"file": {}}}, {"properties": {"file": True}}]},
        {"not": {"properties": {"file": {"type": "null"}}}},
        {"if": {"properties": {"file": {"type": "null"}}}, "then": {"required": ["encoding"]}},
        {"properties": {"n": {}}, "unevaluatedProperties": {"type": "string"}},
        {"const": {"n": 1, "file": "x"}},
    ],
)
def test_schema_rules_involving_content_are_skipped(declared: Mapping[str, object]) -> None:
    params, content = prepare_params({"n": 1, "file": b"x"})
    assert check_params("a", declared, params, [found.path for found in content]) == []


def test_params_matching_no_alternative_are_rejected_with_all_reasons() -> None:
    file = {"properties": {"file": {"type": "string"}}}
    schema = {"anyOf": [{**file, "required": ["name"]}, {**file, "properties": {"n": {"type": "string"}}}]}
    params, content = prepare_params({"n": 1, "file": b"x"})
    error = refused(schema, params, content[0].path)
    reasons = '"name" is a required property; n: 1 is not of type "string"'
    assert error.message == f"export.pdf: params: fits no alternative: {reasons}"


def test_schema_check_handles_content_in_lists_and_at_root() -> None:
    schema = {"properties": {"files": {"items": {"type": "string"}, "uniqueItems": True, "maxItems": 2}}}
    params, content = prepare_params({"files": [b"x", b"y"]})
    assert check_params("a", schema, params, [found.path for found in content]) == []
    params, content = prepare_params({"files": [b"x", b"y", 1]})
    error = refused(schema, params, *(found.path for found in content))
    assert error.details["faults"] == [
        "params.files: [null,null,1] has more than 2 items",
        'params.files.2: 1 is not of type "string"',
    ]
    params, content = prepare_params(b"x")
    assert check_params("a", EXPORT, params, [found.path for found in content]) == []


def test_answer_not_matching_schema_is_a_warning() -> None:
    schema = {"properties": {"pages": {"type": "integer"}, "pdf": {"type": "string"}}, "required": ["pages"]}
    answer = {"pages": "three", "pdf": {"id": "sha256-…"}}
    assert check_output(schema, answer, [("pdf",)]) == ['outputSchema: data.pages: "three" is not of type "integer"']
    assert check_output(schema, {"pdf": "x"}) == ['outputSchema: data: "pages" is a required property']
    assert check_output(schema, {"pages": 3}) == []
    assert len(check_output({"items": {"type": "string"}}, list(range(100)))) == 5


# --- schemas that are broken or hostile -------------------------------------------------------------------------------

_BOMB: dict[str, object] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}


@pytest.mark.fault(23)
@each_row(
    ("schema", "params", "reason"),
    [
        ({"type": "objekt"}, {}, "cannot be used"),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": 1}, "cannot be used"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, {"a": "x"}, 'is not a "regex"'),
        ({"$schema": "urn:mine"}, {}, "Unknown meta-schema"),
        ({"$ref": "#/$defs/gone"}, {}, "cannot be used"),
        ({"$ref": "https://u:p@example.com/s?token=t"}, {}, "$ref to https://example.com/s?… is not followed"),
        ({"$ref": "#named"}, {}, "is not followed"),
        ({"$dynamicRef": "#"}, {}, "$dynamicRef to # is not followed"),
        ({"$defs": {"a": {"$id": "urn:x", "$ref": "#/b"}}}, {}, "($id)"),
        ({"$ref": "#"}, {"a": 1}, "would take too long"),
        ({"$defs": {**_BOMB, "d40": {}}, "$ref": "#/$defs/d0"}, {}, "would take too long"),
        ({"a": "\ud800"}, {}, "not JSON"),
        ({"properties": {"a": {"type": "string"}}}, {"a": object()}, "Unsupported type"),
    ],
)
def test_uncheckable_schema_is_a_warning(schema: Mapping[str, object], params: object, reason: str) -> None:
    (warning,) = check_params("a", schema, params)
    (same,) = check_output(schema, params)
    assert reason in warning and reason in same and len(warning) < 300


@pytest.mark.fault(23)
def test_recursive_schema_is_checked_within_bounds() -> None:
    def nested(levels: int) -> object:
        return {"a": nested(levels - 1)} if levels else 1

    value = {"anyOf": [{"type": "string"}, {"items": {"$ref": "#/$defs/v"}, "type": "array"}]}
    schema = {"$defs": {"v": value}, "properties": {"a": {"$ref": "#/$defs/v"}}}
    assert check_params("a", schema, {"a": ["x", ["y", ["z"] * 500]]}) == []
    assert refused(schema, {"a": ["x", ["y", [1]]]}).details["path"] == "a"
    tree = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    prepared, _ = prepare_params(nested(64))  # the deepest that can be sent
    assert refused(tree, prepared).details["path"] == ".".join("a" * 64)
    twice = {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    assert refused(twice, nested(2)).details["path"] == "a.a"
    assert "would take too long" in check_params("a", twice, nested(40))[0]


@pytest.mark.fault(23)
async def test_schema_refs_are_not_fetched() -> None:
    async with listening() as server:
        url = f"http://127.0.0.1:{server.port}/s"
        for schema in (
            {"$ref": url},
            {"properties": {"a": {"$ref": f"{url}#/x"}}},
            {"$schema": url, "type": "object"},
            {"$id": url, "$ref": "other"},
            {"$id": url, "properties": {"a": {"$dynamicRef": "other#x"}}},
            {"$id": url, "$vocabulary": {url: True}, "type": "object", "$ref": "#/x"},
        ):
            (warning,) = await asyncio.to_thread(check_params, "a", schema, {"a": 1})
            assert "not checked" in warning
        assert server.heard == []


@pytest.mark.fault(23)
def test_pathological_and_many_patterns_are_bounded() -> None:
    """In a process of their own, which may neither crash nor hang."""
    pathological = ["^(a+)+$", "^(a|a)*$", "^(.*)*b$", "(a?){50}a{50}!", "^([a-z]+)*[0-9]$"]
    checks = [
        ("{'allOf': [{'pattern': it} for it in patterns]}", "'a' * 3_000_000"),
        ("{'patternProperties': dict.fromkeys(patterns, {})}", "{f'{n}' + 'a' * 5000: 1 for n in range(400)}"),
        ("{'propertyNames': {'pattern': patterns[0]}}", "{f'{n}' + 'a' * 50_000: 1 for n in range(100)}"),
        ("{'items': {'enum': list(range(9000))}}", "['x'] * 9000"),
    ]
    lines = [
        "from transports.protocol.schema import check_output",
        f"for it in {pathological}: print(check_output({{'pattern': it}}, 'a' * 50_000 + '?')[0][-60:])",
        "patterns = [f'^(a+)*{n}$' for n in range(100)]",
        *(f"print(check_output({schema}, {data})[0])" for schema, data in checks),
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    said = ["does not match"] * len(pathological) + ["would take too long"] * len(checks)
    assert all(words in line for words, line in zip(said, done.stdout.splitlines(), strict=True)), done.stdout


@pytest.mark.fault(21)
def test_deep_nesting_does_not_crash_process() -> None:
    nested: dict[str, object] = {}
    for level in range(100_000):
        nested = {"n": nested}
        if level == 99:
            short = nested
    cases: list[tuple[dict[str, object], object, str]] = [
        ({"properties": {"n": {"$ref": "#"}}}, {"n": nested}, "the value is nested deeper"),
        ({"enum": [nested]}, {}, "not JSON"),
        ({"not": short}, {}, "the schema is nested deeper"),
    ]
    for schema, params, reason in cases:
        (warning,) = check_params("a", schema, params)
        assert reason in warning


def test_schema_is_parsed_once_for_repeated_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def decode(text: bytes) -> object:
        parsed.append(text)
        return decode_json(text)

    monkeypatch.setattr(schemas, "decode_json", decode)
    schema = {"type": "object", "required": ["n"]}
    for _ in range(3):
        assert check_params("x", schema, {"n": 1}) == []
        with pytest.raises(UsageError, match="n"):
            check_params("x", schema, {})
    assert parsed == [encode_json(schema)]
