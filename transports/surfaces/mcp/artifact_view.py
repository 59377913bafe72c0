"""Artifacts as clients see them: what to know before one is read (docs/requirements.md R4-6). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mcp_types import Annotations, Resource, ResourceLink

from ...artifacts import ArtifactRef
from ...protocol.plain_text import plain_line
from ...routing import FileLimits, auto_read_safe, estimated_tokens, large_file_warning

__all__ = ["ArtifactView", "Link"]

#: A function that returns a URL from which an artifact can be fetched, such as a signed one, or ``None``.
Link: TypeAlias = Callable[[ArtifactRef], str | None]

_LARGE = "large: read ranges, artifact://ID?offset=0&length=1000000, or use the local file"
#: URLs of artifacts in one text.
_MAX_URLS = 5
#: Characters of the name of a capability.
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """How artifacts are described to clients.

    ``limits`` say which are large and which may be read unasked. ``link`` returns a URL that opens an artifact. Without
    ``as_resources`` results hold no links to artifacts, since clients could not read them."""

    limits: FileLimits = field(default_factory=FileLimits)
    link: Link | None = None
    as_resources: bool = True

    def meta(self, ref: ArtifactRef) -> dict[str, Any]:
        """Return the ``_meta`` of a resource: its size in bytes, SHA-256, an estimate of the tokens that reading all of
        it costs, what that means, at most five warnings of the call that made it, and its ``url`` if there is one.

        The hints ``readOnlyHint`` and ``idempotentHint`` say that reading changes nothing and may be repeated; MCP has
        no annotations of that name for resources."""
        listed = ref.source.get("warnings")
        warnings = [plain_line(str(item)) for item in listed[:5]] if isinstance(listed, list) else []
        meta = {
            "size_bytes": ref.size_bytes,
            "sha256": ref.sha256,
            **self._reading(ref),
            "warnings": [*warnings, *([_LARGE] if self.is_large(ref) else [])],
            "readOnlyHint": True,
            "idempotentHint": True,
        }
        url = self.url(ref)
        return meta if url is None else {**meta, "url": url}

    def entry(self, ref: ArtifactRef) -> dict[str, object]:
        """Return an artifact as an entry of ``abp_artifacts``: its reference, and what to know before it is read."""
        url = self.url(ref)
        return {**ref.as_dict(), **self._reading(ref), **({"url": url} if url else {})}

    def _reading(self, ref: ArtifactRef) -> dict[str, object]:
        return {
            "estimated_tokens": estimated_tokens(ref),
            "large_file_warning": self.is_large(ref),
            "auto_read_safe": auto_read_safe(ref, self.limits),
        }

    def is_large(self, ref: ArtifactRef) -> bool:
        """Return whether reading all of an artifact would fill the context of a model."""
        return large_file_warning(ref, self.limits)

    def resource(self, ref: ArtifactRef) -> Resource:
        """Return an artifact as an entry of a list of resources."""
        capability, created = ref.source.get("capability"), ref.source.get("created")
        parts = [f"{ref.size_bytes:,} bytes", *([plain_line(f"from {capability}", _MAX_NAME)] if capability else [])]
        if self.is_large(ref):
            parts.append(f"about {estimated_tokens(ref):,} tokens; {_LARGE}")
        return Resource(
            uri=ref.uri,
            name=ref.filename,
            description=", ".join(parts),
            mime_type=ref.mime_type,
            size=ref.size_bytes,
            annotations=Annotations(last_modified=created) if isinstance(created, str) else None,
            _meta=self.meta(ref),
        )

    def links(self, refs: Sequence[ArtifactRef]) -> list[ResourceLink]:
        """Return artifacts as links of a result; none where clients cannot read them."""
        return [ResourceLink(**self.resource(ref).model_dump()) for ref in refs] if self.as_resources else []

    def url(self, ref: ArtifactRef) -> str | None:
        """Return the URL that opens an artifact, if there is one."""
        return self.link(ref) if self.link else None

    def url_lines(self, refs: Sequence[ArtifactRef]) -> list[str]:
        """Return a line for each of the first five artifacts that have a URL, for people and models that can open
        it."""
        return [f"Open: {url}" for ref in refs[:_MAX_URLS] if (url := self.url(ref))]
