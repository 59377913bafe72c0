"""Protocols of a host's store, facade, scopes and references, and their conversion. No I/O."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Protocol, TypeGuard, runtime_checkable

from ...errors import StoreError
from .._ref import Scope


@runtime_checkable
class HostStore(Protocol):
    """The store protocol of docs/requirements.md R2-5.2, as a host implements it.

    ``get_ref(id)``, ``list(scope=)`` and ``scope=`` on both ``put_…`` methods are optional and used if they exist. A
    returned reference needs an ``id``; ``mime_type``, ``size_bytes``, ``filename``, ``sha256``, ``scope`` and
    ``source`` are read if they exist.
    """

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


_STORE = ("put_bytes", "put_text", "get", "delete", "exists")
_FACADE = ("upload", "download", "get_metadata", "exists", "delete")


def is_host_store(value: object) -> bool:
    """Return whether ``value`` has the methods of :class:`HostStore` or of :class:`HostFacade`."""
    return _has(value, _STORE) or _has(value, _FACADE)


def is_facade(value: object) -> TypeGuard[HostFacade]:
    """Return whether ``value`` is a facade and not a store."""
    return _has(value, _FACADE) and not _has(value, _STORE)


def _has(value: object, methods: tuple[str, ...]) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


@dataclass(frozen=True, slots=True)
class HostScope:
    """A scope with the field names of a host (docs/requirements.md R2-7.2), if its own class cannot be found."""

    tenant_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    trace_id: str | None = None


def scope_class(of: Callable[..., object]) -> Callable[..., object]:
    """Return the class in the annotation of the parameter or field ``scope``, or :class:`HostScope` without one."""
    try:
        hint = typing.get_type_hints(of).get("scope")
    except (NameError, TypeError, AttributeError):  # an annotation for type checkers only, or not a Python function
        hint = None
    for candidate in typing.get_args(hint) or (hint,):
        if isinstance(candidate, type) and candidate not in (NoneType, object):
            return candidate
    return HostScope


def scope_to_host(scope: Scope, make: Callable[..., object]) -> object | None:
    """Return ``scope`` as the host's class; ``None`` if no field is set."""
    return make(**{f"{name}_id": value for name, value in scope.items()}) if scope else None


def scope_from_host(scope: object) -> Scope:
    """Return a host's scope as a :class:`~transports.Scope`.

    Raises :class:`~transports.errors.UsageError` for a value that a scope does not accept, such as an empty string:
    leaving it out would open the scope to every caller.
    """
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
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD))


# --- references -------------------------------------------------------------------------------------------------------


def _field(ref: object, name: str) -> object:
    return ref.get(name) if isinstance(ref, Mapping) else getattr(ref, name, None)


def id_of(ref: object) -> str:
    """Return the id of a host's reference. Raises :class:`~transports.errors.StoreError` if it has none."""
    found = _field(ref, "id")
    if not isinstance(found, str) or not found:
        raise StoreError(
            f"the store of the host returned a {type(ref).__name__} without an id; it cannot be used as a reference"
        )
    return found


def text_of(ref: object, name: str) -> str | None:
    """Return a field of a host's reference if it is non-empty text; ``None`` otherwise."""
    found = _field(ref, name)
    return found if isinstance(found, str) and found else None


def size_of(ref: object) -> int | None:
    """Return the size in bytes in a host's reference; ``None`` without one."""
    found = _field(ref, "size_bytes")
    return found if isinstance(found, int) else None


def source_of(ref: object) -> dict[str, object]:
    """Return the ``source`` of a host's reference; empty without one."""
    found = _field(ref, "source")
    return dict(found) if isinstance(found, Mapping) else {}


def scope_of(ref: object) -> Scope | None:
    """Return the scope of a host's reference, empty if it has no owner; ``None`` if references of this host have no
    scope."""
    if not (("scope" in ref) if isinstance(ref, Mapping) else hasattr(ref, "scope")):
        return None
    found = _field(ref, "scope")
    return Scope() if found is None else scope_from_host(found)
