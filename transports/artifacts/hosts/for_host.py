"""One of our stores as the store of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ...errors import ArtifactNotFound
from ..base import ArtifactStore
from ..content import NO_NAMESPACE, PutOptions
from ..ref import ArtifactRef
from .translate import keywords_of, scope_class, scope_from_host, scope_to_host

__all__ = ["StoreForHost"]

Ref = TypeVar("Ref")
list_ = list  # the host's protocol has a method of that name

#: Where a namespace that a host gave stays in ``source``: the head of an id cannot hold all of them.
_NAMESPACE = "host.namespace"
#: Heads of ids that say nothing of where content comes from.
_NO_NAMESPACE = (NO_NAMESPACE, "truncated")


class StoreForHost(Generic[Ref]):
    """A store of ours with the methods and the references of a host::

        ReactPlanner(…, artifact_store=StoreForHost(open_store("s3://bucket/prefix"), penguiflow.artifacts.ArtifactRef))

    ``reference`` is the host's class for references: it is called with those of the keywords ``id``, ``mime_type``,
    ``size_bytes``, ``filename``, ``sha256``, ``scope``, ``namespace`` and ``source`` that it takes. What it does not
    take goes into ``source``, and so do ``uri`` and ``path``, which hosts have no field for.

    An unknown id is ``None`` or ``False``, as hosts expect. What the store refuses (too large, full, damaged) is an
    :class:`~transports.errors.ABPError`. The store sees what its own scope covers; a host that hands artifacts to
    several users checks the scope of each reference itself, or gives each a view (``store.scoped(…)``).
    """

    def __init__(self, store: ArtifactStore, reference: Callable[..., Ref]) -> None:
        #: The store that keeps the artifacts.
        self.store = store
        self._make_ref = reference
        self._fields = keywords_of(reference)
        self._make_scope = scope_class(reference)

    def __repr__(self) -> str:
        return f"StoreForHost({self.store!r})"

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        scope: object = None,
        meta: Mapping[str, object] | None = None,
    ) -> Ref:
        """Store bytes in a scope. The reference's ``source`` is ``meta``, without credentials and content, and what
        the store found out (``sniffed_mime_type``, ``created``, ``warnings`` …)."""
        options = _options(mime_type, filename, namespace, meta)
        return self._to_host(await self._view(scope).put_bytes(data, **options))

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "text/plain",
        filename: str | None = None,
        namespace: str | None = None,
        scope: object = None,
        meta: Mapping[str, object] | None = None,
    ) -> Ref:
        """Store text as UTF-8; the rest as :meth:`put_bytes`."""
        options = _options(mime_type, filename, namespace, meta)
        return self._to_host(await self._view(scope).put_text(text, **options))

    async def get(self, artifact_id: str) -> bytes | None:
        """Return the content, compared with its hash; ``None`` for an unknown id. Raises
        :class:`~transports.errors.Corrupt`."""
        try:
            return await self.store.get(artifact_id)
        except ArtifactNotFound:
            return None

    async def get_ref(self, artifact_id: str) -> Ref | None:
        """Return the reference; ``None`` for an unknown id."""
        try:
            return self._to_host(await self.store.stat(artifact_id))
        except ArtifactNotFound:
            return None

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; ``False`` for an unknown id."""
        return await self.store.delete(artifact_id)

    async def exists(self, artifact_id: str) -> bool:
        """Return whether :meth:`get_ref` would find it."""
        return await self.store.exists(artifact_id)

    async def list(self, *, scope: object = None) -> list_[Ref]:
        """Return the references of everything that ``scope`` covers, oldest first; without one, of everything."""
        return [self._to_host(ref) for ref in await self._view(scope).list()]

    def _view(self, scope: object) -> ArtifactStore:
        return self.store if scope is None else self.store.scoped(scope_from_host(scope))

    def _to_host(self, ref: ArtifactRef) -> Ref:
        source = dict(ref.source)
        head = ref.id.rpartition("_")[0]
        namespace = source.pop(_NAMESPACE, None if head in _NO_NAMESPACE else head)
        fields: dict[str, object] = {
            "id": ref.id,
            "mime_type": ref.mime_type,
            "size_bytes": ref.size_bytes,
            "filename": ref.filename,
            "sha256": ref.sha256,
            "scope": scope_to_host(ref.scope, self._make_scope),
            "namespace": namespace,
        }
        source.setdefault("uri", ref.uri)
        if ref.local_path is not None:
            source.setdefault("path", ref.local_path)
        if self._fields is not None:
            for name in fields.keys() - self._fields:
                value = fields.pop(name)
                if name == "scope":
                    value = dict(ref.scope.items()) or None
                if value is not None:
                    source.setdefault(name, value)
        if self._fields is None or "source" in self._fields:
            fields["source"] = source
        return self._make_ref(**fields)


def _options(
    mime_type: str | None, filename: str | None, namespace: str | None, meta: Mapping[str, object] | None
) -> PutOptions:
    given = {_NAMESPACE: namespace} if namespace is not None else {}
    return {"mime_type": mime_type, "filename": filename, "namespace": namespace, "meta": {**(meta or {}), **given}}
