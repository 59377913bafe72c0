"""JSON and other text in the cells of a ledger."""

from __future__ import annotations

from typing import cast

from ...database import Value
from ...protocol.strict_json import JSONValue, decode_json, encode_json

__all__ = ["decoded_list", "decoded_object", "encoded"]


def encoded(value: object) -> str:
    """Return a JSON value as text."""
    return encode_json(value).decode()


def decoded_object(text: Value) -> dict[str, JSONValue]:
    """Return the JSON object of a cell."""
    return cast("dict[str, JSONValue]", decode_json(str(text)))


def decoded_list(text: Value) -> list[dict[str, JSONValue]]:
    """Return the JSON objects of a cell."""
    return cast("list[dict[str, JSONValue]]", decode_json(str(text)))
