"""What lends running browsers to sessions."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from .launch import Browser

__all__ = ["BrowserLender"]


@runtime_checkable
class BrowserLender(Protocol):
    """Lends each session a browser for as long as it lasts, such as a :class:`transports.batch.Pool`."""

    @property
    def closed(self) -> bool:
        """Whether nothing is lent any more: sessions whose browser ends are over."""

    def lend(self) -> AbstractAsyncContextManager[Browser]:
        """Lend a browser that runs for the length of a block. One that dies meanwhile is not started again; its
        borrower gives it back and borrows another. Raises :class:`~transports.errors.TransportError`."""
