"""Artifacts as resources, in the form of the messages of MCP. Needs nothing of the SDK: ``abp proxy`` does without."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef
from ...errors import TooLarge, UsageError
from ...protocol._plain_text import plain_line
from ...routing._given_files import FileLimits, auto_read_safe, estimated_tokens, is_textual, large_file_warning

#: Resource, link, content, or other object of a message.
Fields: TypeAlias = dict[str, object]
#: Function that returns a URL of an artifact, such as a signed one, or ``None``.
Link: TypeAlias = Callable[[ArtifactRef], str | None]


def _warnings(ref: ArtifactRef) -> list[str]:
    warnings = ref.source.get("warnings")
    if not isinstance(warnings, list):
        return []
    return [plain_line(str(warning)) for warning in warnings[:5]]


def _reading_advice(ref: ArtifactRef) -> str:
    if ref.mime_type.startswith(("image/", "audio/", "video/")):
        return "large: stored whole; give its URI to a tool or the user"
    return "large: read ranges, artifact://ID?offset=0&length=20000"


@dataclass(frozen=True, slots=True)
class ArtifactDescriber:
    """Describes artifacts to MCP clients. ``limits`` decide which artifacts count as large, and which may be read
    without asking. ``link`` returns a URL that opens an artifact. Without ``as_resources`` clients cannot read
    artifacts, so results hold no links to them."""

    limits: FileLimits = field(default_factory=FileLimits)
    link: Link | None = None
    as_resources: bool = True

    def meta(self, ref: ArtifactRef) -> Fields:
        """Return the ``_meta`` of an artifact: what a client should know before it reads, with at most five warnings of
        the call that made it. The two hints are here because MCP has them as annotations of tools only."""
        advice = [_reading_advice(ref)] if self.is_large(ref) else []
        meta: Fields = {
            "size_bytes": ref.size_bytes,
            "sha256": ref.sha256,
            **self._reading_hints(ref),
            "warnings": [*_warnings(ref), *advice],
            "readOnlyHint": True,
            "idempotentHint": True,
        }
        url = self.url(ref)
        if url is not None:
            meta["url"] = url
        return meta

    def listing_entry(self, ref: ArtifactRef) -> Fields:
        entry = {**ref.as_dict(), **self._reading_hints(ref)}
        url = self.url(ref)
        if url:
            entry["url"] = url
        return entry

    def _reading_hints(self, ref: ArtifactRef) -> Fields:
        return {
            "estimated_tokens": estimated_tokens(ref),
            "large_file_warning": self.is_large(ref),
            "auto_read_safe": auto_read_safe(ref, self.limits),
        }

    def is_large(self, ref: ArtifactRef) -> bool:
        return large_file_warning(ref, self.limits)

    def resource(self, ref: ArtifactRef) -> Fields:
        resource: Fields = {
            "uri": ref.uri,
            "name": ref.filename,
            "description": self.description(ref),
            "mimeType": ref.mime_type,
            "size": ref.size_bytes,
            "_meta": self.meta(ref),
        }
        created = ref.source.get("created")
        if isinstance(created, str):
            resource["annotations"] = {"lastModified": created}
        return resource

    def description(self, ref: ArtifactRef) -> str:
        text = f"{ref.size_bytes:,} bytes"
        capability = ref.source.get("capability")
        if capability:
            text += ", " + plain_line(f"from {capability}", 200)
        if self.is_large(ref):
            text += f", about {estimated_tokens(ref):,} tokens; {_reading_advice(ref)}"
        for warning in _warnings(ref)[:1]:
            text += f"; {plain_line(warning, 200)}"
        return text

    def url(self, ref: ArtifactRef) -> str | None:
        if self.link is None:
            return None
        return self.link(ref)

    def url_lines(self, refs: Sequence[ArtifactRef]) -> list[str]:
        """Return a line with a URL for each of the first five artifacts that have one."""
        urls = [self.url(ref) for ref in refs[:5]]
        return [f"Open: {url}" for url in urls if url]


TEMPLATE: Fields = {
    "uriTemplate": "artifact://{id}{?offset,length}",
    "name": "artifact",
    "description": "An artifact, or `length` bytes of it from `offset`.",
}


async def list_artifacts(store: ArtifactStore, cursor: str | None, describer: ArtifactDescriber) -> Fields:
    """Return one page of 50, newest first. ``cursor`` is the id of the last artifact of the page before."""
    newest_first = (await store.list())[::-1]
    start = 0
    if cursor is not None:
        ids = [ref.id for ref in newest_first]
        if cursor not in ids:
            raise UsageError("this cursor is not valid; list the resources from the beginning")
        start = ids.index(cursor) + 1
    end = start + 50
    page = newest_first[start:end]
    result: Fields = {"resources": [describer.resource(ref) for ref in page]}
    if len(newest_first) > end:
        result["nextCursor"] = page[-1].id
    return result


async def read_artifact(store: ArtifactStore, uri: str, max_bytes: int, describer: ArtifactDescriber) -> Fields:
    """Read an artifact or a range of it, ``artifact://ID?offset=0&length=1000``. Anything but text becomes base64."""
    try:
        parts = urlsplit(uri)
        query = dict(parse_qsl(parts.query))
        ref = await store.stat(parts.netloc)
        offset = int(query.get("offset", 0))
        length = int(query.get("length", ref.size_bytes))
        size = max(0, min(length, ref.size_bytes - offset))
        if size > max_bytes:
            raise over_limit(ref, max_bytes)
        if query:
            data = await store.get(ref, offset=offset, length=size)
        else:
            data = await store.get(ref)
    except ValueError:
        message = "the URI must be artifact://ID, with offset and length in whole numbers of bytes"
        raise UsageError(message) from None

    meta = {**describer.meta(ref), "offset": offset, "length": len(data)}
    return {"contents": [artifact_contents(uri, ref, data, meta)]}


def over_limit(ref: ArtifactRef, max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the artifact has {ref.size_bytes} bytes and at most {max_bytes} are read at once; read ranges: "
        f"{ref.uri}?offset=0&length={max_bytes}"
    )


def artifact_contents(uri: str, ref: ArtifactRef, data: bytes, meta: Fields) -> Fields:
    contents: Fields = {"uri": uri, "mimeType": ref.mime_type, "_meta": meta}
    if is_textual(ref.mime_type):
        with suppress(UnicodeDecodeError):
            return {**contents, "text": data.decode()}
    return {**contents, "blob": base64.b64encode(data).decode()}
