"""Artifacts as JSON, and how a browser may show them. No I/O."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ...artifacts import ArtifactRef

__all__ = ["INLINE_TYPES", "Preview", "artifact_meta", "preview_of"]

Preview: TypeAlias = Literal["image", "pdf", "audio", "video", "text", "json", "csv", "hex"]

_IMAGES = {f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp", "avif", "bmp", "x-icon", "apng")}
_AUDIO = {f"audio/{kind}" for kind in ("mpeg", "wav", "ogg", "flac", "mp4", "aac", "webm")}
_VIDEO = {f"video/{kind}" for kind in ("mp4", "webm", "ogg")}
#: MIME types that a browser shows by itself, and without running anything in them.
INLINE_TYPES = _IMAGES | _AUDIO | _VIDEO | {"application/pdf", "text/plain"}
_TEXT = {"application/xml", "application/javascript", "application/rtf", "application/x-ndjson", "application/yaml"}


def preview_of(mime_type: str) -> Preview:
    """Return how the gallery shows content of this type. SVG may hold script; it is safe as the source of an image and
    nowhere else."""
    if mime_type in _IMAGES or mime_type == "image/svg+xml":
        return "image"
    if mime_type == "application/pdf":
        return "pdf"
    if mime_type in _AUDIO:
        return "audio"
    if mime_type in _VIDEO:
        return "video"
    if mime_type == "text/csv":
        return "csv"
    if mime_type == "application/json" or mime_type.endswith("+json"):
        return "json"
    return "text" if mime_type.startswith("text/") or mime_type.endswith("+xml") or mime_type in _TEXT else "hex"


def artifact_meta(ref: ArtifactRef) -> dict[str, object]:
    """Return the document that ``/artifacts`` and ``/events`` give of an artifact. ``url`` is a path on this server."""
    source = ref.source
    return {
        "id": ref.id,
        "uri": ref.uri,
        "filename": ref.filename,
        "mime_type": ref.mime_type,
        "size_bytes": ref.size_bytes,
        "sha256": ref.sha256,
        "created": source.get("created"),
        "session": ref.scope.session,
        "capability": source.get("capability"),
        "app": source.get("app"),
        "call": source.get("call"),
        "evidence": source.get("evidence"),
        "preview": preview_of(ref.mime_type),
        "url": f"/artifacts/{ref.id}",
    }
