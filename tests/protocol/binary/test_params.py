"""Parameters on their way to the app."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.support.rows import each_row
from transports.errors import UsageError
from transports.protocol._find_content import Found
from transports.protocol._params import prepare_params, set_path
from transports.protocol.binary import BinaryData, LocalFile


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_accepted_anywhere_in_params(kind: type) -> None:
    prepared, found = prepare_params({"b": (kind(b"x"),), "a.b": [1, kind(b"GIF89a")], "n": [None, True, 1.5, "é"]})
    gif, x = BinaryData(b"GIF89a", "image/gif", 6), BinaryData(b"x", None, 1)
    assert prepared == {"b": [x], "a.b": [1, gif], "n": [None, True, 1.5, "é"]}
    assert list(prepared) == ["b", "a.b", "n"]
    assert found == [Found(("b", 0), x), Found(("a.b", 1), gif)]
    assert prepare_params(kind(b"x"))[1] == [Found((), x)]


@pytest.mark.requirement("R5-3b", "R1-11a", "R1-11c")
def test_prepare_params_finds_files_and_binary_data_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(b"GIF89a")
    data = BinaryData(b"x", "text/x", 1, "x.txt")
    _, found = prepare_params({"file": path, "data": data})
    assert [item.binary for item in found] == [BinaryData(LocalFile(path), "image/gif", 6, "a.gif"), data]
    with pytest.raises(UsageError, match="No such file"):
        prepare_params({"file": tmp_path / "no"})


class TestDescriptor:
    """docs/protocol.md 9.13: ``{content, mimeType}`` is one binary."""

    def test_descriptor_around_bytes_or_binary_data_becomes_binary_data(self) -> None:
        given_params = {"image": {"content": b"abc", "mimeType": "image/x", "filename": "a.x", "size": 99, "alt": "A"}}
        prepared, found = prepare_params(given_params)
        expected = BinaryData(b"abc", "image/x", 3, "a.x", {"alt": "A"})
        assert prepared == {"image": expected} and found == [Found(("image",), expected)]
        data = BinaryData(b"x", "text/x", 1, "x", {"a": 1, "b": 1})
        (around,) = prepare_params({"content": data, "mimeType": "text/y", "b": 2})[1]
        assert around.binary == BinaryData(b"x", "text/y", 1, "x", {"a": 1, "b": 2})

    def test_descriptor_around_file_keeps_its_name_by_default(self, tmp_path: Path) -> None:
        path = tmp_path / "a.gif"
        path.write_bytes(b"GIF89a")
        own, told = prepare_params(
            [{"content": path, "mimeType": "image/x"}, {"content": path, "mimeType": "image/x", "filename": "b"}]
        )[1]
        assert own.binary == BinaryData(LocalFile(path), "image/x", 6, "a.gif")
        assert told.binary == BinaryData(LocalFile(path), "image/x", 6, "b")

    def test_descriptor_needs_mime_type_and_binary_content(self) -> None:
        base64_text = {"content": "YWJj", "mimeType": "image/x", "encoding": "base64"}
        assert prepare_params(base64_text) == (base64_text, [])
        for mime_type in ({}, {"mimeType": None}):
            assert prepare_params({"content": b"x", **mime_type})[1][0].path == ("content",)

    @pytest.mark.parametrize("beside", [b"y", [b"y"], {"z": b"y"}])
    def test_binary_param_rejects_second_content(self, beside: object) -> None:
        with pytest.raises(UsageError, match=r"p\.q holds another"):
            prepare_params({"p": {"q": {"content": b"x", "mimeType": "image/x", "thumbnail": beside}}})


@each_row(
    ("params", "message"),
    [
        ({"a": [math.nan]}, r"nan at a\.0 is not a JSON value"),
        ({"a": math.inf}, "inf at a is not a JSON value"),
        ({"a": {1}}, "set at a cannot be sent"),
        ({"content": b"x", "mimeType": "image/x", "alt": {1}}, "set at alt cannot be sent"),
        (object(), "object at the top cannot be sent"),
        ({"a": {1: 2}}, "key 1 at a must be text"),
        ({"a": "\ud800"}, "text at a holds half"),
        ({"a": {"\ud800": 1}}, "text at a holds half"),
    ],
)
def test_non_json_params_are_rejected_with_location(params: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare_params(params)


def nested(levels: int) -> object:
    tree: object = "leaf"
    for level in range(levels):
        tree = [tree] if level % 2 else {"a": tree}
    return tree


def test_params_nesting_is_limited_to_64_levels() -> None:
    """docs/faults.md 21, the other way."""
    assert prepare_params(nested(64)) == (nested(64), [])
    for params in (nested(65), nested(100_000)):
        with pytest.raises(UsageError, match="deeper than 64"):
            prepare_params(params)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="deeper than 64"):
        prepare_params(loop)


def test_set_path_places_value_in_parameters() -> None:
    params: dict[str, object] = {"a": [1, {"b": 2}]}
    set_path(params, ["a", "1", "b"], 3)
    set_path(params, ["a", "2"], 4)
    set_path(params, ["c", "d"], 5)
    assert params == {"a": [1, {"b": 3}, 4], "c": {"d": 5}}
    for step in ("4", "-1", "x", "²", "9" * 5000):
        with pytest.raises(UsageError, match=rf"^a\.{step}: 'a' already has a value that is not an object; give"):
            set_path(params, ["a", step], 6)
    with pytest.raises(UsageError, match=r"^c\.d\.e: 'd' already has a value that is not an object; give the whole"):
        set_path(params, ["c", "d", "e"], 6)
