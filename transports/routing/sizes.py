"""The safety net for size (seed 002 §3.1): which texts of an answer are too long to read in it. No I/O."""

from __future__ import annotations

from ..artifacts import ArtifactRef
from ..binary.detect import Place
from ..binary.media import is_binary_mime, normalise_mime, sniff
from ..protocol.strict_json import JSONValue

__all__ = ["long_texts", "preview"]

_PREVIEW = 200  # characters


def long_texts(data: object, over: int) -> list[tuple[Place, str, str]]:
    """Place, text and MIME type of every text of more than ``over`` characters, in order. An answer that is one text
    is not among them: it is stored as a whole."""
    found: list[tuple[Place, str, str]] = []
    _walk(data, (), over, found)
    return found


def _walk(node: object, path: Place, over: int, found: list[tuple[Place, str, str]]) -> None:
    if isinstance(node, dict):
        for name, value in node.items():
            if type(value) is str:
                if len(value) > over:
                    found.append(((*path, str(name)), value, _text_type(value, node.get("mimeType"))))
            elif isinstance(value, dict | list | tuple):
                _walk(value, (*path, str(name)), over, found)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if type(value) is str:
                if len(value) > over:
                    found.append(((*path, index), value, _text_type(value, None)))
            elif isinstance(value, dict | list | tuple):
                _walk(value, (*path, index), over, found)


def _text_type(text: str, declared: object) -> str:
    """The type of a text: the one declared beside it, if it is one of text, else what it looks like."""
    bare = normalise_mime(declared) if isinstance(declared, str) else None
    if bare is not None and not is_binary_mime(bare):
        return bare
    looks = sniff(text[:1024].encode(errors="replace"))
    return looks if looks in ("text/html", "image/svg+xml", "application/xml") else "text/plain"


def preview(text: str, ref: ArtifactRef) -> JSONValue:
    """What agents see in the place of a long text (seed 002 §3.1)."""
    kept = "stored" if not ref.source.get("truncated") else "not stored: there is no artifact store"
    reference: dict[str, JSONValue] = {"id": ref.id, "uri": ref.uri, "path": str(ref.path) if ref.path else None}
    about: dict[str, JSONValue] = {"mime_type": ref.mime_type, "size_bytes": ref.size_bytes}
    return {
        "artifact": reference | about,
        "summary": f"Large text {kept} ({len(text):,} characters)",
        "preview": text[:_PREVIEW] + "…",
    }
