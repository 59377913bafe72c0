"""An artifact as an MCP resource: what a client should know before it reads it (docs/requirements.md R4-6). No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mcp_types import Resource

from ...artifacts import ArtifactRef
from ...routing import auto_read_safe, estimated_tokens, large_file_warning

__all__ = ["Link", "artifact_meta", "artifact_resource"]

#: A function that returns a URL from which an artifact can be fetched, such as a signed one, or ``None``.
Link: TypeAlias = Callable[[ArtifactRef], str | None]


def artifact_meta(ref: ArtifactRef, link: Link | None = None) -> dict[str, Any]:
    """Return the ``_meta`` of a resource: its size in bytes, SHA-256, an estimate of the tokens that reading all of it
    costs, at most five warnings of the call that made it, and its ``url`` if ``link`` has one."""
    listed = ref.source.get("warnings")
    warnings = [str(item) for item in listed][:5] if isinstance(listed, list) else []
    if large_file_warning(ref):
        warnings.append("large: read ranges, artifact://ID?offset=0&length=1000000, or use the local file")
    meta = {
        "size_bytes": ref.size_bytes,
        "sha256": ref.sha256,
        "estimated_tokens": estimated_tokens(ref),
        "auto_read_safe": auto_read_safe(ref),
        "warnings": warnings,
    }
    url = link(ref) if link else None
    return meta if url is None else {**meta, "url": url}


def artifact_resource(ref: ArtifactRef, link: Link | None = None) -> Resource:
    """Return an artifact as an entry of a list of resources."""
    capability = ref.source.get("capability")
    parts = [f"{ref.size_bytes:,} bytes", *([f"from {capability}"] if capability else [])]
    return Resource(
        uri=ref.uri,
        name=ref.filename,
        description=", ".join(parts),
        mime_type=ref.mime_type,
        size=ref.size_bytes,
        _meta=artifact_meta(ref, link),
    )
