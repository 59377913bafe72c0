"""Adapters between this library's stores and the store of a host program, in both directions.

A host is an agent framework with its own artifact store, such as penguiflow. It has the store protocol of
docs/requirements.md R2-5.2 (:class:`HostStore`), or a facade (:class:`HostFacade`). :class:`HostedStore` wraps
a host's store, :class:`StoreForHost` is used by a host. The functions convert scopes and references.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import typing
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar, Unpack, runtime_checkable

from .._internal.recent import Recent
from .._internal.tasks import in_thread
from ..errors import ABPError, ArtifactNotFound, Corrupt, StoreError, first_line
from ..protocol._media import OCTET_STREAM, extension_for, normalise_mime, safe_filename
from ._base import DEFAULT_MAX_BYTES, ArtifactStore
from ._content import NO_NAMESPACE, REDACTOR, Description, Meter, PutOptions, describe, encode_text
from ._memory import BufferedFile
from ._ref import ArtifactRef, Scope, age_key, described_ref, not_found

_STORE_METHODS = ("put_bytes", "put_text", "get", "delete", "exists")
_FACADE_METHODS = ("upload", "download", "get_metadata", "exists", "delete")
T = TypeVar("T")
Ref = TypeVar("Ref")
list_ = list  # the host's protocol has a method of that name
#: Key of a host's namespace in ``source``: the head of an id cannot hold every namespace.
_NAMESPACE_KEY = "host.namespace"


@runtime_checkable
class HostStore(Protocol):
    """The store protocol of docs/requirements.md R2-5.2, as a host implements it.

    ``get_ref(id)``, ``list(scope=)`` and ``scope=`` on both ``put_…`` methods are optional and used if they exist. A
    returned reference needs an ``id``; ``mime_type``, ``size_bytes``, ``filename``, ``sha256``, ``scope`` and
    ``source`` are read if they exist."""

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, object] | None = None,
    ) -> object:
        """Store bytes and return the host's reference."""

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "text/plain",
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, object] | None = None,
    ) -> object:
        """Store text and return the host's reference."""

    async def get(self, artifact_id: str) -> bytes | None:
        """Return the content, or ``None`` for an unknown id."""

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; ``False`` for an unknown id."""

    async def exists(self, artifact_id: str) -> bool:
        """Return whether there is an artifact of this id."""


@runtime_checkable
class HostFacade(Protocol):
    """The facade that tools of a host get in place of its store, bound to one scope (``ScopedArtifacts``)."""

    @property
    def scope(self) -> object:
        """Scope of everything that is uploaded."""

    async def upload(
        self,
        data: bytes | str,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, object] | None = None,
    ) -> object:
        """Store bytes or text and return the host's reference."""

    async def download(self, artifact_id: str) -> bytes | None:
        """Return the content, or ``None`` for an id that is unknown or of another scope."""

    async def get_metadata(self, artifact_id: str) -> object | None:
        """Return the reference, or ``None`` for an id that is unknown or of another scope."""

    async def exists(self, artifact_id: str) -> bool:
        """Return whether :meth:`download` would find the id."""

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; ``False`` if :meth:`download` would not find it."""


@runtime_checkable
class _HasStore(Protocol):
    @property
    def artifact_store(self) -> object: ...


@runtime_checkable
class _HasArtifacts(Protocol):
    @property
    def artifacts(self) -> object: ...


#: What ``store=`` takes of a host: its store, the facade of its tools, or an object with either.
FromHost: TypeAlias = HostStore | HostFacade | _HasStore | _HasArtifacts


def is_host_store(value: object) -> bool:
    return _has_methods(value, _STORE_METHODS) or _has_methods(value, _FACADE_METHODS)


def is_facade(value: object) -> TypeGuard[HostFacade]:
    return _has_methods(value, _FACADE_METHODS) and not _has_methods(value, _STORE_METHODS)


def _has_methods(value: object, methods: tuple[str, ...]) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


@dataclass(frozen=True, slots=True)
class HostScope:
    """A scope with the field names of a host (docs/requirements.md R2-7.2), if its own class cannot be found."""

    tenant_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    trace_id: str | None = None


def scope_class(annotated: Callable[..., object]) -> Callable[..., object]:
    """Return the class in the annotation of ``scope``, a parameter or a field; :class:`HostScope` without one."""
    try:
        hint = typing.get_type_hints(annotated).get("scope")
    except (NameError, TypeError, AttributeError):
        # The annotation is for type checkers only, or this is not a Python function.
        hint = None
    for candidate in typing.get_args(hint) or (hint,):
        if isinstance(candidate, type) and candidate not in (NoneType, object):
            return candidate
    return HostScope


def scope_to_host(scope: Scope, make: Callable[..., object]) -> object | None:
    if not scope:
        return None
    return make(**{f"{name}_id": value for name, value in scope.items()})


def scope_from_host(scope: object) -> Scope:
    """Return a host's scope as ours. Raises :class:`~transports.errors.UsageError` for a value that a scope does not
    accept, such as an empty string: leaving it out would open the scope to every caller."""
    names = ("tenant", "user", "session", "trace")
    if isinstance(scope, Mapping):
        return Scope(**{name: scope.get(f"{name}_id") for name in names})
    return Scope(**{name: getattr(scope, f"{name}_id", None) for name in names})


def keywords_of(function: Callable[..., object]) -> frozenset[str] | None:
    """Return the keyword names that ``function`` accepts; ``None`` if it accepts any, or its signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    names = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            return None
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return frozenset(names)


# --- references -------------------------------------------------------------------------------------------------------


def _field_of(ref: object, name: str) -> object:
    return ref.get(name) if isinstance(ref, Mapping) else getattr(ref, name, None)


def id_of(ref: object) -> str:
    artifact_id = _field_of(ref, "id")
    if not isinstance(artifact_id, str) or not artifact_id:
        raise StoreError(
            f"the store of the host returned a {type(ref).__name__} without an id; it cannot be used as a reference"
        )
    return artifact_id


def text_of(ref: object, name: str) -> str | None:
    text = _field_of(ref, name)
    return text if isinstance(text, str) and text else None


def size_of(ref: object) -> int | None:
    size = _field_of(ref, "size_bytes")
    return size if isinstance(size, int) else None


def source_of(ref: object) -> dict[str, object]:
    source = _field_of(ref, "source")
    return dict(source) if isinstance(source, Mapping) else {}


def scope_of(ref: object) -> Scope | None:
    """Return the scope of a host's reference: empty without an owner, ``None`` if such references have no scope."""
    has_scope = "scope" in ref if isinstance(ref, Mapping) else hasattr(ref, "scope")
    if not has_scope:
        return None
    scope = _field_of(ref, "scope")
    return Scope() if scope is None else scope_from_host(scope)


class FacadeStore:
    """A :class:`HostFacade` with the methods of a :class:`HostStore`. The facade decides on owners and on access."""

    def __init__(self, facade: HostFacade) -> None:
        self._facade = facade
        self.put_bytes = self.put_text = facade.upload
        self.get = facade.download
        self.get_ref = facade.get_metadata
        self.exists = facade.exists
        self.delete = facade.delete
        # Not every facade can list its artifacts.
        listing = getattr(facade, "list", None)
        if callable(listing):
            self.list = listing

    @property
    def upload_scope(self) -> Scope:
        return scope_from_host(self._facade.scope)


class _Staged(BufferedFile):
    """A staged file in memory, whose content goes to the host in one piece."""

    _store: HostedStore
    #: The content as text, if it was stored as text.
    text: str | None = None

    async def _publish(self, description: Description) -> ArtifactRef:
        content = self.content() if self.text is None else self.text
        return await self._store._publish(content, description)


class HostedStore(ArtifactStore):
    """The store of a host, or the facade that its tools get, as an :class:`ArtifactStore`.

    The host transfers content in one piece, so an artifact is held in memory while it is stored or read; ``max_bytes``
    is the largest. Content is measured and named here first; ids are the host's. A returned reference with another hash
    or size raises :class:`~transports.errors.StoreError`, as does any error of the host. Properties that the host does
    not report are measured from the content. For a host without ``list``, the list has the artifacts that this process
    stored. Retention is up to the host.

    A host with ``scope=`` gets the scope of each view. For other hosts the scope goes into ``meta``, and a digest of
    the scope into the namespace, because most hosts merge equal content of one namespace and scopes must stay apart. In
    that case only this process knows the owner of an artifact."""

    _staged_class = _Staged

    def __init__(self, host: HostStore | HostFacade, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__(max_bytes=max_bytes)
        self.url = f"host:{type(host).__name__}"
        # A type cannot describe the optional methods and arguments of a host.
        self._host: Any = host
        if is_facade(host):
            self._host = FacadeStore(host)
        put: Callable[..., object] = self._host.put_bytes
        self._takes_scope = not isinstance(self._host, FacadeStore) and "scope" in (keywords_of(put) or ())
        self._make_scope = scope_class(put)
        #: References by id and scope, shared by all views.
        self._remembered: Recent[str, dict[Scope, ArtifactRef]] = Recent(10_000)

    async def put_text(self, text: str, **options: Unpack[PutOptions]) -> ArtifactRef:
        """Store text with the host's own method for text. Arguments and errors are those of every store."""
        defaults: PutOptions = {"mime_type": "text/plain"}
        async with self.stage() as staged:
            assert isinstance(staged, _Staged)
            staged.text = text
            await staged.write(encode_text(text))
            return await staged.commit(**(defaults | options))

    # --- the contract of a store --------------------------------------------------------------------------------------

    async def _stat_artifact(self, artifact_id: str) -> tuple[ArtifactRef, float]:
        # The host does not report when an artifact was stored last, so the time is always 0.
        ref = next(self._remembered_refs(artifact_id, self.scope), None)
        if ref:
            if await self._still_exists(artifact_id):
                return ref, 0.0
            raise not_found(artifact_id)

        get_ref = getattr(self._host, "get_ref", None)
        if get_ref is None:
            return await self._to_ours(artifact_id, None), 0.0

        host_ref = await self._call_host(get_ref(artifact_id))
        if host_ref is None:
            raise not_found(artifact_id)
        return await self._to_ours(artifact_id, host_ref), 0.0

    async def _list_artifacts(self, scope: Scope) -> Sequence[tuple[ArtifactRef, float]]:
        refs: dict[str, ArtifactRef] = {}
        listing = getattr(self._host, "list", None)
        if listing:
            options = {"scope": scope_to_host(scope, self._make_scope)} if self._takes_scope else {}
            for host_ref in await self._call_host(listing(**options)):
                ref = await self._to_ours(id_of(host_ref), host_ref)
                if scope.covers(ref.scope):
                    refs[ref.id] = ref

        for artifact_id in list(self._remembered):
            remembered = next(self._remembered_refs(artifact_id, scope), None)
            if remembered and artifact_id not in refs and await self._still_exists(artifact_id):
                refs[artifact_id] = remembered

        return [(ref, 0.0) for ref in sorted(refs.values(), key=age_key)]

    async def _read_range(self, ref: ArtifactRef, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        data = await self._read_content(ref.id)
        if len(data) != ref.size_bytes or await in_thread(_sha256, data) != ref.sha256:
            raise Corrupt(f"artifact {ref.id} is damaged: the host returned different content", details={"id": ref.id})
        for position in range(start, end, chunk_size):
            yield data[position : min(position + chunk_size, end)]

    async def _delete_artifact(self, artifact_id: str, stored: float | None = None) -> bool:
        refs_by_scope = self._remembered.get(artifact_id, {})
        for ref in list(self._remembered_refs(artifact_id, self.scope)):
            del refs_by_scope[ref.scope]
        if refs_by_scope:
            # The host keeps one copy for several scopes, and another scope still needs it.
            return True

        self._remembered.pop(artifact_id, None)
        return bool(await self._call_host(self._host.delete(artifact_id)))

    # --- the host -----------------------------------------------------------------------------------------------------

    async def _publish(self, content: bytes | str, description: Description) -> ArtifactRef:
        """Store content in the host, so that no other scope has the artifact, and return our reference to it."""
        host_scope = self.scope
        if isinstance(self._host, FacadeStore):
            # A facade decides the scope of new artifacts.
            host_scope = self._host.upload_scope

        namespace = description.namespace
        meta = dict(description.source)
        options: dict[str, object] = {"mime_type": description.mime_type, "filename": description.name, "meta": meta}
        if self._takes_scope:
            options["scope"] = scope_to_host(self.scope, self._make_scope)
        elif self.scope:
            namespace = _namespace_of_scope(namespace, self.scope)
            meta["scope"] = dict(self.scope.items())

        put = self._host.put_text if isinstance(content, str) else self._host.put_bytes
        host_ref = await self._call_host(put(content, namespace=namespace, **options))
        is_of_other_scope = host_scope and scope_of(host_ref) not in (None, host_scope)
        if is_of_other_scope:
            # The host merged equal content of another scope, so store it again in another namespace.
            namespace = _namespace_of_scope(namespace, host_scope)
            host_ref = await self._call_host(put(content, namespace=namespace, **options))

        self._require_same_content(host_ref, description)
        ref = described_ref(id_of(host_ref), description, source_of(host_ref), self.scope or host_scope)
        # Remember the reference for `stat` and `list`: many hosts can neither describe nor list artifacts.
        refs_by_scope = self._remembered.get(ref.id, {})
        self._remembered[ref.id] = refs_by_scope | {ref.scope: ref}
        return ref

    def _require_same_content(self, host_ref: object, description: Description) -> None:
        size = size_of(host_ref)
        same_hash = text_of(host_ref, "sha256") in (None, description.sha256)
        if not same_hash or size not in (None, description.size):
            raise StoreError(
                f"the store of the host ({self.url}) returned a reference to different content: "
                f"{size} bytes instead of {description.size}, or another hash; check the limits of that store"
            )

    async def _call_host(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except ABPError:
            raise
        except Exception as error:
            # A host may raise any exception.
            reason = REDACTOR.redact_text(first_line(error))
            raise StoreError(f"the store of the host ({self.url}) failed: {type(error).__name__}: {reason}") from error

    async def _read_content(self, artifact_id: str) -> bytes:
        data: bytes | None = await self._call_host(self._host.get(artifact_id))
        if data is None:
            raise not_found(artifact_id)
        return data

    async def _to_ours(self, artifact_id: str, host_ref: object) -> ArtifactRef:
        """Return our reference for a host's. What the host does not report is measured from the content."""
        mime_type = text_of(host_ref, "mime_type")
        size = size_of(host_ref)
        sha256 = text_of(host_ref, "sha256")
        if mime_type is None or size is None or sha256 is None:
            data = await self._read_content(artifact_id)
            meter = Meter(len(data))
            await in_thread(meter.add, memoryview(data))
            mime_type = describe(meter, mime_type=mime_type, namespace=artifact_id).mime_type
            size = meter.size
            sha256 = meter.sha256

        mime_type = normalise_mime(mime_type) or OCTET_STREAM
        filename = text_of(host_ref, "filename") or artifact_id + extension_for(mime_type)
        return ArtifactRef(
            id=artifact_id,
            uri=f"artifact://{artifact_id}",
            local_path=None,
            filename=safe_filename(filename, fallback="artifact", mime_type=mime_type),
            mime_type=mime_type,
            size_bytes=size,
            sha256=sha256,
            source=source_of(host_ref),
            scope=scope_of(host_ref) or Scope(),
        )

    # --- references of this process -----------------------------------------------------------------------------------

    def _remembered_refs(self, artifact_id: str, scope: Scope) -> Iterator[ArtifactRef]:
        return (ref for ref in self._remembered.get(artifact_id, {}).values() if scope.covers(ref.scope))

    async def _still_exists(self, artifact_id: str) -> bool:
        exists = bool(await self._call_host(self._host.exists(artifact_id)))
        if not exists:
            self._remembered.pop(artifact_id, None)
        return exists


def _namespace_of_scope(namespace: str, scope: Scope) -> str:
    return f"{namespace}_{_sha256(json.dumps(scope.items()).encode())[:8]}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class StoreForHost(Generic[Ref]):
    """An :class:`ArtifactStore` with the methods and the references of a host::

        ReactPlanner(…, artifact_store=StoreForHost(open_store("s3://bucket/prefix"), penguiflow.artifacts.ArtifactRef))

    ``reference`` is the host's class for references. It is called with those of the keywords ``id``, ``mime_type``,
    ``size_bytes``, ``filename``, ``sha256``, ``scope``, ``namespace`` and ``source`` that it accepts. The other values
    go into ``source``, as do ``uri`` and ``path``, for which hosts have no field.

    An unknown id gives ``None`` or ``False``, as hosts expect; a refusal of the store (too large, full, damaged) raises
    :class:`~transports.errors.ABPError`. The store sees the artifacts of its own scope. A host with several users must
    check the scope of each reference itself, or give each user a view (``store.scoped(…)``).
    """

    def __init__(self, store: ArtifactStore, reference: Callable[..., Ref]) -> None:
        #: The store that keeps the artifacts.
        self.store = store
        self._make_ref = reference
        #: Keywords that ``reference`` accepts; ``None`` for all.
        self._accepted = keywords_of(reference)
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
        """Store bytes in a scope. The reference's ``source`` is ``meta``, without credentials and content, and the
        findings of the store (``sniffed_mime_type``, ``created``, ``warnings`` …)."""
        options = _put_options(mime_type, filename, namespace, meta)
        ref = await self._view_of(scope).put_bytes(data, **options)
        return self._to_host(ref)

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
        """Store text as UTF-8, otherwise as :meth:`put_bytes` does."""
        options = _put_options(mime_type, filename, namespace, meta)
        ref = await self._view_of(scope).put_text(text, **options)
        return self._to_host(ref)

    async def get(self, artifact_id: str) -> bytes | None:
        """Return the content, verified by its hash; ``None`` for an unknown id. Raises
        :class:`~transports.errors.Corrupt`."""
        return await self.store.get(artifact_id)

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
        """Return whether :meth:`get_ref` would find the id."""
        return await self.store.exists(artifact_id)

    async def list(self, *, scope: object = None) -> list_[Ref]:
        """Return the references of all artifacts of ``scope``, oldest first; of the whole store without a scope."""
        return [self._to_host(ref) for ref in await self._view_of(scope).list()]

    def _view_of(self, scope: object) -> ArtifactStore:
        return self.store if scope is None else self.store.scoped(scope_from_host(scope))

    def _to_host(self, ref: ArtifactRef) -> Ref:
        """Return the host's reference for ours. Values for which the host has no keyword go into ``source``."""
        source = dict(ref.source)
        # An id begins with its namespace, or with one of the two words below.
        id_head = ref.id.rpartition("_")[0]
        default_namespace = None if id_head in (NO_NAMESPACE, "truncated") else id_head
        namespace = source.pop(_NAMESPACE_KEY, default_namespace)

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

        if self._accepted is None:
            return self._make_ref(**fields, source=source)

        for name in fields.keys() - self._accepted:
            value = fields.pop(name)
            if name == "scope" and value is not None:
                # ``source`` holds JSON values, and the host's class for scopes is none.
                value = dict(ref.scope.items())
            if value is not None:
                source.setdefault(name, value)
        if "source" in self._accepted:
            fields["source"] = source
        return self._make_ref(**fields)


def _put_options(
    mime_type: str | None, filename: str | None, namespace: str | None, meta: Mapping[str, object] | None
) -> PutOptions:
    meta = dict(meta or {})
    if namespace is not None:
        meta[_NAMESPACE_KEY] = namespace
    return {"mime_type": mime_type, "filename": filename, "namespace": namespace, "meta": meta}
