"""Answers of the ``shape`` capability over JSON: one for each form of content, of known bytes (byte i is i % 251)."""

import base64
from collections.abc import Callable
from typing import Any

from webapp_fixture.binarydata import OCTETS, wrap

LARGE = 300 * 1024


def pattern(size: int) -> bytes:
    """Return ``size`` bytes, of which byte i is i % 251."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def _file(size: int) -> dict[str, Any]:
    return wrap(pattern(size))


def _mixed(size: int) -> dict[str, Any]:
    text = "grüße, 世界"
    plain = {"content": text, "mimeType": "text/plain", "encoding": "utf-8", "size": len(text.encode())}
    parts = {"large": _file(LARGE), "small": _file(size), "blob": _file(size), "text": _file(size), "plain": plain}
    return {**parts, "nested": [{"item": _file(size)}]}


def _flat(size: int) -> dict[str, Any]:
    return {"document": base64.b64encode(pattern(size)).decode(), "mimeType": OCTETS, "size": size}


def _deep(size: int) -> dict[str, Any]:
    six = {"six": _file(size), "note": "six levels down"}
    return {"one": {"two": {"three": {"four": {"five": six}}}}}


SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "base64": lambda size: {"file": _file(size), "size": size},
    "empty": lambda _size: {"file": _file(0), "size": 0},
    "top": lambda size: wrap(pattern(size), filename="pattern.bin"),
    "flat": _flat,
    "deep": _deep,
    "list": lambda size: {"files": [_file(size + extra) for extra in range(3)]},
    "mixed": _mixed,
    "nonAscii": lambda size: {"text": "é 世界 𝄞 🎼", "ключ 🎵": "value", "file": _file(size)},
}
BARE = ("top", "flat")  # data itself is the thing


def shape(params: dict[str, Any]) -> dict[str, Any]:
    """Return the answer in the form that is asked for, with the same keys as the page's."""
    name = params["shape"]
    data = SHAPES[name](int(params.get("size", 1024)))
    return data if name in BARE else {**data, "shape": name, "note": "metadata beside the file"}
