"""An artifact as a resource of MCP: what a client should know before it reads (seed 004). No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mcp_types import Resource

from ...artifacts import ArtifactRef
from ...routing import auto_read_safe, estimated_tokens, large_file_warning

__all__ = ["Link", "described", "meta"]

#: An address where an artifact can be fetched, if there is one: a signed URL of a web server, say.
Link: TypeAlias = Callable[[ArtifactRef], str | None]


def meta(ref: ArtifactRef, link: Link | None = None) -> dict[str, Any]:
    """``_meta``: size, an estimate of the tokens that reading all of it costs, warnings, and its ``url`` if it has
    one."""
    said = ref.source.get("warnings")
    warnings = [str(item) for item in said][:5] if isinstance(said, list) else []
    if large_file_warning(ref):
        warnings.append("large: read ranges, artifact://ID?offset=0&length=1000000, or use the local file")
    about = {
        "size_bytes": ref.size_bytes,
        "sha256": ref.sha256,
        "estimated_tokens": estimated_tokens(ref),
        "auto_read_safe": auto_read_safe(ref),
        "warnings": warnings,
    }
    url = link(ref) if link else None
    return about if url is None else {**about, "url": url}


def described(ref: ArtifactRef, link: Link | None = None) -> Resource:
    """The entry of an artifact in a list of resources."""
    made_by = ref.source.get("capability")
    words = [f"{ref.size_bytes:,} bytes", *([f"from {made_by}"] if made_by else [])]
    return Resource(
        uri=ref.uri,
        name=ref.filename,
        description=", ".join(words),
        mime_type=ref.mime_type,
        size=ref.size_bytes,
        _meta=meta(ref, link),
    )
