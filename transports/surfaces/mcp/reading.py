"""Artifacts on their way to a client: whole as resources, or in slices."""

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
from .about import Link, described, meta

__all__ = ["TEMPLATE", "artifact_slice", "list_resources", "read_resource"]

_PAGE = 50
_LONGEST_URI = 300

TEMPLATE = ResourceTemplate(
    uri_template="artifact://{id}{?offset,length}",
    name="artifact",
    description="An artifact, or `length` bytes of it from `offset`.",
)


async def list_resources(store: ArtifactStore, cursor: str | None, link: Link | None) -> ListResourcesResult:
    """A page of what there is, newest first. Raises :class:`MCPError` for a cursor that is none of ours."""
    refs = (await store.list())[::-1]
    start = 0
    if cursor is not None:
        start = 1 + next((at for at, ref in enumerate(refs) if ref.id == cursor), len(refs))
        if start > len(refs):
            raise MCPError(INVALID_PARAMS, "this cursor leads nowhere; list the resources from the beginning")
    page = refs[start : start + _PAGE]
    more = page[-1].id if len(refs) > start + _PAGE else None
    return ListResourcesResult(resources=[described(ref, link) for ref in page], next_cursor=more)


async def read_resource(store: ArtifactStore, uri: str, max_bytes: int) -> ReadResourceResult:
    """The content behind ``artifact://ID`` or ``artifact://ID?offset=0&length=1000``. Raises :class:`MCPError`."""
    parts = urlsplit(uri)
    if parts.scheme != "artifact" or not parts.netloc:
        raise MCPError(INVALID_PARAMS, "only artifact://ID can be read here", {"uri": uri[:_LONGEST_URI]})
    query = dict(parse_qsl(parts.query))
    try:
        ref = await store.stat(parts.netloc)
        offset, length = int(query.get("offset", 0)), int(query.get("length", ref.size_bytes))
        wanted = max(0, min(length, ref.size_bytes - offset))
        if wanted > max_bytes:
            raise MCPError(
                INVALID_PARAMS,
                f"the artifact has {ref.size_bytes} bytes and {max_bytes} are read at once; read ranges: "
                f"{ref.uri}?offset=0&length={max_bytes}",
            )
        data = await store.get(ref.id) if not query else await store.get(ref.id, offset=offset, length=wanted)
    except (ArtifactNotFound, Corrupt, UsageError) as error:
        raise MCPError(INVALID_PARAMS, error.message, {"uri": uri[:_LONGEST_URI], "code": error.code}) from error
    except ValueError:
        raise MCPError(INVALID_PARAMS, "offset and length must be whole numbers of bytes") from None
    about = {**meta(ref), "offset": offset, "length": len(data)}
    text = _text(ref, data)
    if text is not None:
        content: TextResourceContents | BlobResourceContents = TextResourceContents(
            uri=uri, mime_type=ref.mime_type, text=text, _meta=about
        )
    else:
        content = BlobResourceContents(
            uri=uri, mime_type=ref.mime_type, blob=base64.b64encode(data).decode(), _meta=about
        )
    return ReadResourceResult(contents=[content])


def _text(ref: ArtifactRef, data: bytes) -> str | None:
    if is_textual(ref.mime_type):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None
    return None


async def artifact_slice(
    store: ArtifactStore, artifact_id: str, offset: int, length: int | None, max_bytes: int, link: Link | None = None
) -> CallToolResult:
    """Up to ``length`` bytes, and never an answer above ``max_bytes``. Raises what a store does."""
    ref = await store.stat(artifact_id.removeprefix("artifact://"))
    room = (max_bytes - 1024) * 3 // 4
    length = room if length is None else min(length, room)
    while True:
        data = await store.get(ref.id, offset=offset, length=length)
        text, taken = _sliced(ref, data, offset + len(data) >= ref.size_bytes)
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
        length //= 2  # text with many characters that JSON escapes


def _sliced(ref: ArtifactRef, data: bytes, last: bool) -> tuple[str | None, int]:
    """The text of whole characters in ``data`` and how many bytes they are, or ``None`` where it is no text."""
    if is_textual(ref.mime_type):
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(data, final=last)
        except UnicodeDecodeError:
            return None, len(data)
        taken = len(text.encode())
        if taken or not data:
            return text, taken
    return None, len(data)
