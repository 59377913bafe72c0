"""The methods that a host's store has. No I/O."""

from __future__ import annotations

from typing import Protocol, TypeGuard

__all__ = ["HostFacade", "HostStore", "is_facade", "is_host_store"]


class HostStore(Protocol):
    """The store protocol of docs/requirements.md R2-5.2, as a host implements it.

    A store may have more: ``get_ref(id)``, ``list(scope=)``, and ``scope=`` on both ``put_…`` methods. They are used
    where they are there. References that come back need an ``id``; ``mime_type``, ``size_bytes``, ``filename``,
    ``sha256``, ``scope`` and ``source`` are read if they have them.
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


class HostFacade(Protocol):
    """What tools of a host get in place of its store: the scope is the facade's own (``ScopedArtifacts``)."""

    @property
    def scope(self) -> object:
        """The scope of everything that is uploaded."""

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
        """Return whether :meth:`download` would find it."""

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; ``False`` where :meth:`download` finds none."""


_STORE = ("put_bytes", "put_text", "get", "delete", "exists")
_FACADE = ("upload", "download", "get_metadata", "exists", "delete")


def is_host_store(value: object) -> bool:
    """Return whether ``value`` has the methods of :class:`HostStore` or of :class:`HostFacade`."""
    return _has(value, _STORE) or _has(value, _FACADE)


def is_facade(value: object) -> TypeGuard[HostFacade]:
    """Return whether ``value`` is a facade and no store."""
    return _has(value, _FACADE) and not _has(value, _STORE)


def _has(value: object, methods: tuple[str, ...]) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)
