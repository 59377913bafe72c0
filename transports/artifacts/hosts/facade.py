"""The facade that tools of a host get, with the methods of a store."""

from __future__ import annotations

from ..ref import Scope
from .protocol import HostFacade
from .translate import scope_from_host

__all__ = ["FacadeStore"]


class FacadeStore:
    """A :class:`HostFacade` with the methods of a :class:`HostStore`. The facade decides whose an artifact is and who
    may read it."""

    def __init__(self, facade: HostFacade) -> None:
        self._facade = facade
        self.get = facade.download
        self.get_ref = facade.get_metadata
        self.exists = facade.exists
        self.delete = facade.delete
        if callable(listing := getattr(facade, "list", None)):
            self.list = listing

    @property
    def upload_scope(self) -> Scope:
        """The owner of everything that is put."""
        return scope_from_host(self._facade.scope)

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, object] | None = None,
    ) -> object:
        """Upload bytes."""
        return await self._facade.upload(data, mime_type=mime_type, filename=filename, namespace=namespace, meta=meta)

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "text/plain",
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, object] | None = None,
    ) -> object:
        """Upload text."""
        return await self._facade.upload(text, mime_type=mime_type, filename=filename, namespace=namespace, meta=meta)
