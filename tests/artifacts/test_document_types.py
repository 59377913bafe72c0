"""Types that the source document of docs/requirements.md R2 prints, as they stand there, beside those of the kit."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from transports.artifacts import HostStore, MemoryStore, Retention, Scope, open_store

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


# --- beside ours ------------------------------------------------------------------------------------------------------

PDF = b"%PDF-1.4 " + b"x" * 100


@pytest.mark.requirement("R2-7.1a", "R2-7.1b", "R2-7.1c", "R2-7.1d", "R2-7.1e", "R2-7.1f", "R2-7.1g", "R2-6.0a")
def test_retention_defaults_match_document() -> None:
    documented = ArtifactRetentionConfig().model_dump()
    assert documented == {
        one.name: getattr(Retention(), one.name) for one in fields(Retention) if one.name in documented
    }
    assert Retention(**documented) == Retention()


@pytest.mark.requirement("R2-5.4a", "R2-7.2a")
async def test_artifact_reference_has_documented_fields() -> None:
    scope = Scope(tenant="t", user="u", session="s", trace="r")
    ref = await MemoryStore().scoped(scope).put_bytes(PDF, mime_type="application/pdf", filename="a.pdf")
    shown = ref.as_dict()
    assert shown.keys() == {"id", "uri", "path", "filename", "mime_type", "size_bytes", "sha256", "scope"}
    assert (shown["uri"], shown["path"]) == (f"artifact://{ref.id}", None)
    own = ArtifactRef.model_validate({**shown, "scope": {f"{name}_id": value for name, value in scope.items()}})
    assert (own.id, own.mime_type, own.size_bytes) == (ref.id, "application/pdf", len(PDF))
    assert (own.filename, own.sha256) == ("a.pdf", hashlib.sha256(PDF).hexdigest())
    assert own.scope == ArtifactScope(tenant_id="t", user_id="u", session_id="s", trace_id="r")


@pytest.mark.requirement("R2-5.2a", "R2-5.2d", "R2-5.2e", "R2-5.2f", "R2-5.2h", "R2-7.4e")
@pytest.mark.parametrize("url", ["./files", "memory:", "none:"])
async def test_store_satisfies_host_store_protocol(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url)
    assert isinstance(store, HostStore)
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
