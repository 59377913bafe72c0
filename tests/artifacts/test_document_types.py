"""Types that the source document of docs/requirements.md R2 prints, as they stand there, beside those of the kit."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import fields
from typing import Any, Literal, Protocol, runtime_checkable

import pytest
from pydantic import BaseModel

from transports.artifacts import MemoryStore, NoneStore, Retention, Scope, discover_store

logger = logging.getLogger(__name__)

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
