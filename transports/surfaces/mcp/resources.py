"""Artifacts as MCP resources, read whole or in slices."""

from __future__ import annotations

import base64
import codecs
from urllib.parse import parse_qsl, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    CallToolResult,
    ListResourcesResult,
    ReadResourceResult,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from ...artifacts import ArtifactRef, ArtifactStore
from ...errors import ArtifactNotFound, Corrupt, UsageError
from ...protocol.strict_json import encode_json
from ...routing import is_textual
from .artifact_meta import Link, artifact_meta, artifact_resource

__all__ = ["TEMPLATE", "list_resources", "read_resource", "read_slice"]

_PAGE = 50
#: Characters of a URI in an error.
_MAX_URI = 300

TEMPLATE = ResourceTemplate(
    uri_template="artifact://{id}{?offset,length}",
    name="artifact",
    description="An artifact, or `length` bytes of it from `offset`.",
)


async def list_resources(store: ArtifactStore, cursor: str | None, link: Link | None) -> ListResourcesResult:
    """Return one page of 50 artifacts, newest first. Raises :class:`MCPError` for a cursor of no artifact in the
    store."""
    refs = (await store.list())[::-1]
    start = 0
    if cursor is not None:
        start = 1 + next((at for at, ref in enumerate(refs) if ref.id == cursor), len(refs))
        if start > len(refs):
            raise MCPError(INVALID_PARAMS, "this cursor leads nowhere; list the resources from the beginning")
    page = refs[start : start + _PAGE]
    more = page[-1].id if len(refs) > start + _PAGE else None
    return ListResourcesResult(resources=[artifact_resource(ref, link) for ref in page], next_cursor=more)


async def read_resource(store: ArtifactStore, uri: str, max_bytes: int) -> ReadResourceResult:
    """Return the content of ``artifact://ID`` or of its range ``artifact://ID?offset=0&length=1000``, in bytes: text as
    it is, anything else as base64.

    Raises :class:`MCPError` for another URI, an unknown or damaged artifact, and above ``max_bytes``."""
    parts = urlsplit(uri)
    if parts.scheme != "artifact" or not parts.netloc:
        raise MCPError(INVALID_PARAMS, "only artifact://ID can be read here", {"uri": uri[:_MAX_URI]})
    query = dict(parse_qsl(parts.query))
    try:
        ref = await store.stat(parts.netloc)
        offset, length = int(query.get("offset", 0)), int(query.get("length", ref.size_bytes))
        size = max(0, min(length, ref.size_bytes - offset))
        if size > max_bytes:
            raise MCPError(
                INVALID_PARAMS,
                f"the artifact has {ref.size_bytes} bytes and {max_bytes} are read at once; read ranges: "
                f"{ref.uri}?offset=0&length={max_bytes}",
            )
        data = await store.get(ref.id) if not query else await store.get(ref.id, offset=offset, length=size)
    except (ArtifactNotFound, Corrupt, UsageError) as error:
        raise MCPError(INVALID_PARAMS, error.message, {"uri": uri[:_MAX_URI], "code": error.code}) from error
    except ValueError:
        raise MCPError(INVALID_PARAMS, "offset and length must be whole numbers of bytes") from None
    meta = {**artifact_meta(ref), "offset": offset, "length": len(data)}
    text = _text(ref, data)
    if text is not None:
        content: TextResourceContents | BlobResourceContents = TextResourceContents(
            uri=uri, mime_type=ref.mime_type, text=text, _meta=meta
        )
    else:
        content = BlobResourceContents(
            uri=uri, mime_type=ref.mime_type, blob=base64.b64encode(data).decode(), _meta=meta
        )
    return ReadResourceResult(contents=[content])


def _text(ref: ArtifactRef, data: bytes) -> str | None:
    if is_textual(ref.mime_type):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None
    return None


async def read_slice(
    store: ArtifactStore, artifact_id: str, offset: int, length: int | None, max_bytes: int, link: Link | None = None
) -> CallToolResult:
    """Return up to ``length`` bytes from ``offset`` in a result of at most ``max_bytes``: a JSON header, then the
    content. Raises what the store raises."""
    ref = await store.stat(artifact_id.removeprefix("artifact://"))
    limit = (max_bytes - 1024) * 3 // 4
    length = limit if length is None else min(length, limit)
    while True:
        data = await store.get(ref.id, offset=offset, length=length)
        text, taken = _whole_characters(ref, data, offset + len(data) >= ref.size_bytes)
        end = offset + taken
        header = {
            "id": ref.id,
            "mime_type": ref.mime_type,
            "size_bytes": ref.size_bytes,
            "offset": offset,
            "length": taken,
            "encoding": "base64" if text is None else "utf-8",
            "next_offset": end if end < ref.size_bytes and taken else None,
        }
        if link and (url := link(ref)):
            header["url"] = url
        content = base64.b64encode(data).decode() if text is None else text
        answer = CallToolResult(content=[TextContent(text=encode_json(header).decode()), TextContent(text=content)])
        if len(answer.model_dump_json(by_alias=True).encode()) <= max_bytes:
            return answer
        length //= 2  # a text with many characters that JSON escapes


def _whole_characters(ref: ArtifactRef, data: bytes, last: bool) -> tuple[str | None, int]:
    """The text in ``data`` up to its last whole character, with its length in bytes; ``None`` and all bytes if it is
    not text."""
    if is_textual(ref.mime_type):
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(data, final=last)
        except UnicodeDecodeError:
            return None, len(data)
        taken = len(text.encode())
        if taken or not data:
            return text, taken
    return None, len(data)
