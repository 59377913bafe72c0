"""The size layer (docs/requirements.md R2-3.1): the texts of an answer that are too long to be read in it. No I/O."""

from __future__ import annotations

from ..artifacts import ArtifactRef
from ..binary.detect import Place
from ..binary.media import is_binary_mime, normalise_mime
from ..binary.signatures import sniff
from ..protocol.strict_json import JSONValue

__all__ = ["long_texts", "preview", "shorten"]

_PREVIEW_CHARS = 200


def long_texts(data: object, limit: int) -> list[tuple[Place, str, str]]:
    """Return place, text and MIME type of every text with more than ``limit`` characters, in order.

    An answer that is a text itself is not among them, because it is stored as a whole.
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
    stored = "stored" if not ref.source.get("truncated") else "not stored: there is no artifact store"
    reference: dict[str, JSONValue] = {"id": ref.id, "uri": ref.uri, "path": ref.local_path}
    about: dict[str, JSONValue] = {"mime_type": ref.mime_type, "size_bytes": ref.size_bytes}
    return {
        "artifact": reference | about,
        "summary": f"Large text {stored} ({len(text):,} characters)",
        "preview": shorten(text),
    }


def shorten(text: str) -> str:
    """Return the first 200 characters of a long text, and an ellipsis."""
    return text[:_PREVIEW_CHARS] + "…"
