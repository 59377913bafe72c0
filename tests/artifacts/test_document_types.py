"""Types that the source document of docs/requirements.md R2 prints, as they stand there, beside those of the kit."""

from __future__ import annotations

import base64
import hashlib
import logging
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import pytest
from pydantic import BaseModel

from transports.artifacts import HostStore, MemoryStore, NoneStore, Retention, Scope, discover_store, open_store
from transports.routing import TransformContext

logger = logging.getLogger(__name__)
#: Names of the document's framework.
StateStore: TypeAlias = object
ToolContext: TypeAlias = Any

# --- the document, verbatim -------------------------------------------------------------------------------------------


class ArtifactRetentionConfig(BaseModel):
    """Retention policy for artifacts."""

    # Time-to-live
    ttl_seconds: int = 3600  # 1 hour default

    # Size limits
    max_artifact_bytes: int = 50 * 1024 * 1024  # 50MB per artifact
    max_session_bytes: int = 500 * 1024 * 1024  # 500MB per session
    max_trace_bytes: int = 100 * 1024 * 1024  # 100MB per trace

    # Count limits
    max_artifacts_per_trace: int = 100
    max_artifacts_per_session: int = 1000

    # Cleanup behavior
    cleanup_strategy: Literal["lru", "fifo", "none"] = "lru"


class ArtifactScope(BaseModel):
    """Scoping information for access control."""

    tenant_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    trace_id: str | None = None


class ArtifactRef(BaseModel):
    """Compact reference to stored artifact."""

    id: str
    mime_type: str | None = None
    size_bytes: int | None = None
    filename: str | None = None
    sha256: str | None = None

    # Scoping metadata (for access control, not enforcement)
    scope: ArtifactScope | None = None

    source: dict[str, Any] = {}


@runtime_checkable
class ArtifactStore(Protocol):
    """Protocol for binary/large-text artifact storage."""

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ArtifactRef:
        """Store binary data, return compact reference."""
        ...

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "text/plain",
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ArtifactRef:
        """Store large text, return compact reference."""
        ...

    async def get(self, artifact_id: str) -> bytes | None:
        """Retrieve artifact bytes by ID. Returns None if not found."""
        ...

    async def delete(self, artifact_id: str) -> bool:
        """Delete artifact. Returns True if deleted, False if not found."""
        ...

    async def exists(self, artifact_id: str) -> bool:
        """Check if artifact exists."""
        ...


class NoOpArtifactStore:
    """Fallback when no real store configured."""

    def __init__(self, max_inline_preview: int = 500):
        self._max_preview = max_inline_preview
        self._warned = False

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        **kwargs: Any,
    ) -> ArtifactRef:
        if not self._warned:
            logger.warning(
                "No ArtifactStore configured. Binary content will not be stored. "
                "Configure artifact_store= in ReactPlanner for full binary support."
            )
            self._warned = True

        return ArtifactRef(
            id=f"truncated_{hashlib.sha256(data).hexdigest()[:12]}",
            mime_type=mime_type,
            size_bytes=len(data),
            filename=filename,
            sha256=hashlib.sha256(data).hexdigest(),
            source={
                "warning": "Content not stored (no ArtifactStore configured)",
                "truncated": True,
                "original_size": len(data),
            },
        )

    async def put_text(self, text: str, **kwargs: Any) -> ArtifactRef:
        # Similar implementation with preview
        raise NotImplementedError

    async def get(self, artifact_id: str) -> bytes | None:
        return None  # Cannot retrieve truncated content

    async def exists(self, artifact_id: str) -> bool:
        return False


def discover_artifact_store(state_store: Any) -> ArtifactStore | None:
    """
    Attempt to discover ArtifactStore from state_store via duck-typing.

    Checks for:
    1. state_store.artifact_store attribute (preferred)
    2. state_store implementing ArtifactStore protocol directly
    """
    # Option 1: Explicit attribute
    if hasattr(state_store, "artifact_store"):
        candidate = state_store.artifact_store
        if isinstance(candidate, ArtifactStore):
            return candidate

    # Option 2: State store implements ArtifactStore directly
    if isinstance(state_store, ArtifactStore):
        return state_store

    return None


class ReactPlanner:
    def __init__(
        self,
        *,
        state_store: StateStore | None = None,
        artifact_store: ArtifactStore | None = None,  # Explicit param
        # ...
    ):
        self._state_store = state_store

        # Resolution order:
        # 1. Explicit parameter (highest priority)
        # 2. Discovered from state_store
        # 3. NoOpArtifactStore fallback (lowest priority)
        if artifact_store is not None:
            self._artifact_store = artifact_store
        elif state_store is not None:
            discovered = discover_artifact_store(state_store)
            if discovered:
                self._artifact_store = discovered
                logger.debug("Discovered ArtifactStore from state_store")
            else:
                self._artifact_store = NoOpArtifactStore()  # type: ignore[assignment]
        else:
            self._artifact_store = NoOpArtifactStore()  # type: ignore[assignment]


class ResourceCache:
    """Cache for MCP resource reads."""

    def __init__(self, artifact_store: ArtifactStore):
        self._store = artifact_store
        self._uri_to_artifact: dict[str, ArtifactRef] = {}

    async def get_or_fetch(
        self,
        uri: str,
        mcp_client: Any,
        ctx: ToolContext,
    ) -> ArtifactRef:
        """Get cached artifact or fetch from server."""
        if uri in self._uri_to_artifact:
            ref = self._uri_to_artifact[uri]
            if await self._store.exists(ref.id):
                return ref
            del self._uri_to_artifact[uri]

        contents = await mcp_client.read_resource(uri)
        ref = await self._contents_to_artifact(contents, ctx)
        self._uri_to_artifact[uri] = ref
        return ref

    def invalidate(self, uri: str) -> None:
        """Invalidate cache entry (called on resources/updated)."""
        if uri in self._uri_to_artifact:
            logger.debug("Invalidating cached resource: %s", uri)
            del self._uri_to_artifact[uri]

    # left out by the document
    async def _contents_to_artifact(self, contents: Any, ctx: ToolContext) -> ArtifactRef:
        (one,) = contents["contents"]
        ref: ArtifactRef = await ctx.artifacts.put_bytes(base64.b64decode(one["blob"]), mime_type=one["mimeType"])
        return ref


# --- beside ours ------------------------------------------------------------------------------------------------------

PDF = b"%PDF-1.4 " + b"x" * 100


@pytest.mark.requirement("R2-7.1a", "R2-7.1b", "R2-7.1c", "R2-7.1d", "R2-7.1e", "R2-7.1f", "R2-7.1g", "R2-6.0a")
def test_a_retention_has_the_defaults_of_the_document() -> None:
    documented = ArtifactRetentionConfig().model_dump()
    assert documented == {
        one.name: getattr(Retention(), one.name) for one in fields(Retention) if one.name in documented
    }
    assert Retention(**documented) == Retention()


@pytest.mark.requirement("R2-5.4a", "R2-7.2a", "R2-7.4b", "R2-7.4c")
async def test_a_reference_has_the_fields_of_the_document() -> None:
    scope = Scope(tenant="t", user="u", session="s", trace="r")
    ref = await MemoryStore().scoped(scope).put_bytes(PDF, mime_type="application/pdf", filename="a.pdf")
    shown = ref.as_dict()
    own = ArtifactRef.model_validate({**shown, "scope": {f"{name}_id": value for name, value in scope.items()}})
    assert (own.id, own.mime_type, own.size_bytes) == (ref.id, "application/pdf", len(PDF))
    assert (own.filename, own.sha256) == ("a.pdf", hashlib.sha256(PDF).hexdigest())
    assert own.scope == ArtifactScope(tenant_id="t", user_id="u", session_id="s", trace_id="r")
    kept_nowhere = await NoneStore().put_bytes(PDF, mime_type="application/pdf", filename="a.pdf")
    theirs = await NoOpArtifactStore().put_bytes(PDF, mime_type="application/pdf", filename="a.pdf")
    ours = ArtifactRef.model_validate(kept_nowhere.as_dict())
    assert ours == theirs.model_copy(update={"source": ours.source})
    assert (
        theirs.source
        == {**ours.source, "original_size": len(PDF)}
        == {name: kept_nowhere.source[name] for name in theirs.source}
    )


@pytest.mark.requirement("R2-5.2a", "R2-5.2h")
def test_the_store_without_delete_is_no_store_by_the_documents_own_protocol() -> None:
    """So it is no store for the kit either; the kit's own store that keeps nothing has ``delete``."""
    assert isinstance(MemoryStore(), ArtifactStore) and isinstance(NoneStore(), ArtifactStore)
    assert not isinstance(NoOpArtifactStore(), ArtifactStore)
    assert discover_store(NoOpArtifactStore()) is None


@pytest.mark.requirement("R2-5.2a", "R2-5.2d", "R2-5.2e", "R2-5.2f", "R2-5.2h", "R2-7.4e")
@pytest.mark.parametrize("url", ["./files", "memory:", "none:"])
async def test_a_store_of_ours_that_a_host_discovers_does_what_its_protocol_says(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = open_store(url)
    for state in (ours, SimpleNamespace(artifact_store=ours)):
        store: object = discover_artifact_store(state)
        assert store is ours and isinstance(store, HostStore)
        assert await store.get("unknown_0123456789ab") is None
        assert await store.delete("unknown_0123456789ab") is False
        assert await store.exists("unknown_0123456789ab") is False
        ref = await store.put_bytes(
            PDF, mime_type="application/pdf", filename="report.pdf", namespace="tableau", meta={"report_id": 7}
        )
        text = await store.put_text("grüße", mime_type="text/markdown", filename=None, namespace=None, meta=None)
        assert (ref.mime_type, ref.size_bytes, ref.filename) == ("application/pdf", len(PDF), "report.pdf")
        assert ref.sha256 == hashlib.sha256(PDF).hexdigest() and ref.source["report_id"] == 7
        assert text.mime_type == "text/markdown"
        kept = url != "none:"
        assert await store.get(ref.id) == (PDF if kept else None)
        assert await store.get(text.id) == ("grüße".encode() if kept else None)
        assert await store.exists(ref.id) is await store.delete(ref.id) is kept
        assert await store.get(ref.id) is None


@pytest.mark.requirement("R2-5.2g", "R2-5.2h", "R2-7.4a")
def test_the_planner_of_the_document_takes_our_stores() -> None:
    given, found = MemoryStore(), MemoryStore()

    def chosen(**options: Any) -> object:
        return ReactPlanner(**options)._artifact_store

    host = SimpleNamespace(artifact_store=found)
    assert chosen(state_store=host, artifact_store=given) is given
    assert chosen(state_store=host) is found and chosen(state_store=found) is found
    assert isinstance(chosen(state_store=object()), NoOpArtifactStore) and isinstance(chosen(), NoOpArtifactStore)
    # as connect() chooses, whose last is a folder (D1)
    assert discover_store(host) is found and discover_store(found) is found and discover_store(object()) is None


@pytest.mark.requirement("R2-7.3a", "R2-7.3b")
async def test_the_cache_of_the_document_works_over_our_stores() -> None:
    reads: list[str] = []

    class Server:
        async def read_resource(self, uri: str) -> dict[str, object]:
            reads.append(uri)
            blob = base64.b64encode(PDF + b"%d" % len(reads)).decode()
            return {"contents": [{"uri": uri, "mimeType": "application/pdf", "blob": blob}]}

    store, uri = MemoryStore(), "tableau://workbook/12345/pdf"
    context = TransformContext("resources.read", "", store)
    cache = ResourceCache(cast(Any, store))
    first = await cache.get_or_fetch(uri, Server(), context)
    assert await cache.get_or_fetch(uri, Server(), context) == first and len(reads) == 1
    assert await store.get(first.id) == PDF + b"1"
    cache.invalidate(uri)
    second = await cache.get_or_fetch(uri, Server(), context)
    assert await store.get(second.id) == PDF + b"2"
    await store.delete(second.id)
    assert await store.get((await cache.get_or_fetch(uri, Server(), context)).id) == PDF + b"3"
