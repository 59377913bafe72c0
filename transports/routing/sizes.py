"""The size layer (docs/requirements.md R2-3.1): the texts of an answer that are too long to be read in it. No I/O."""

from __future__ import annotations

from typing import cast

from ..artifacts import ArtifactRef
from ..binary.detect import Place
from ..binary.media import is_binary_mime, normalise_mime
from ..binary.signatures import sniff
from ..protocol.strict_json import JSONValue

__all__ = ["is_long", "long_texts", "preview", "shorten"]

#: Characters that a preview shows of a text, and of a text that is stored nowhere (docs/requirements.md R2-7.4).
_PREVIEW_CHARS, _UNSTORED_PREVIEW_CHARS = 200, 500


def is_long(text: str, limit: int | None) -> bool:
    """Return whether a text has more than ``limit`` characters; ``None`` means no limit."""
    return limit is not None and len(text) > limit


def long_texts(data: object, limit: int) -> list[tuple[Place, str, str]]:
    """Return place, text and MIME type of every text with more than ``limit`` characters, in order.

    An answer that is a text itself is not among them: it is stored as JSON, and needs no second file.
    """
    found: list[tuple[Place, str, str]] = []
    _walk(data, (), limit, found)
    return found


def _walk(node: object, path: Place, limit: int, found: list[tuple[Place, str, str]]) -> None:
    if isinstance(node, dict):
        for name, value in node.items():
            if type(value) is str:
                if len(value) > limit:
                    found.append(((*path, str(name)), value, _text_type(value, node.get("mimeType"))))
            elif isinstance(value, dict | list | tuple):
                _walk(value, (*path, str(name)), limit, found)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if type(value) is str:
                if len(value) > limit:
                    found.append(((*path, index), value, _text_type(value, None)))
            elif isinstance(value, dict | list | tuple):
                _walk(value, (*path, index), limit, found)


def _text_type(text: str, declared: object) -> str:
    """The type of a text: the one declared beside it if that is a text type, else the type of its markup."""
    bare = normalise_mime(declared) if isinstance(declared, str) else None
    if bare is not None and not is_binary_mime(bare):
        return bare
    looks = sniff(text[:1024].encode(errors="replace"))
    return looks if looks in ("text/html", "image/svg+xml", "application/xml") else "text/plain"


def preview(text: str, ref: ArtifactRef) -> JSONValue:
    """Return the value that agents see in the place of a long text (docs/requirements.md R2-3.1)."""
    stored = "stored" if ref.stored else "not stored: there is no artifact store"
    shown = ref.as_dict()
    names = ("id", "uri", "path", "mime_type", "size_bytes", "truncated", "warning")
    return {
        "artifact": cast(JSONValue, {name: shown[name] for name in names if name in shown}),
        "summary": f"Large text {stored} ({len(text):,} characters)",
        "preview": shorten(text, stored=ref.stored),
    }


def shorten(text: str, *, stored: bool = True) -> str:
    """Return the first 200 characters of a long text, 500 if it is not ``stored``, and an ellipsis if it goes on."""
    limit = _PREVIEW_CHARS if stored else _UNSTORED_PREVIEW_CHARS
    return text if len(text) <= limit else text[:limit] + "…"
