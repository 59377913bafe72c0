"""An artifact as a resource of MCP: what a client should know before it reads (seed 004). No I/O."""

from __future__ import annotations

from typing import Any

from mcp_types import Resource

from ...artifacts import ArtifactRef

__all__ = ["described", "is_text", "meta"]

#: Bytes that are safe to read without a second thought.
_SAFE = 64 * 1024
_LARGE = 5 << 20
_TEXTS = ("application/json", "application/xml", "application/javascript", "image/svg+xml")


def is_text(mime_type: str) -> bool:
    """Whether content of this type is shown as text, if it is UTF-8."""
    return mime_type.startswith("text/") or mime_type in _TEXTS or mime_type.endswith(("+json", "+xml"))


def meta(ref: ArtifactRef) -> dict[str, Any]:
    """``_meta``: size, an estimate of the tokens that reading all of it costs (four bytes each), and warnings."""
    text = is_text(ref.mime_type)
    said = ref.source.get("warnings")
    warnings = [str(item) for item in said][:5] if isinstance(said, list) else []
    if ref.size_bytes > _LARGE:
        warnings.append("large: read ranges, artifact://ID?offset=0&length=1000000, or use the local file")
    return {
        "size_bytes": ref.size_bytes,
        "sha256": ref.sha256,
        "estimated_tokens": ref.size_bytes // 4 if text else ref.size_bytes // 3,
        "auto_read_safe": ref.size_bytes <= _SAFE,
        "warnings": warnings,
    }


def described(ref: ArtifactRef) -> Resource:
    """The entry of an artifact in a list of resources."""
    made_by = ref.source.get("capability")
    words = [f"{ref.size_bytes:,} bytes", *([f"from {made_by}"] if made_by else [])]
    return Resource(
        uri=ref.uri,
        name=ref.filename,
        description=", ".join(words),
        mime_type=ref.mime_type,
        size=ref.size_bytes,
        _meta=meta(ref),
    )
