"""Transports that are given the store of their session, and the transport that passes everything on to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..base import Transport
from ..binary import Handle
from ..protocol.messages import Message, Sender
from ._base import ArtifactStore


@runtime_checkable
class TakesStore(Protocol):
    """A transport that is given the session's store: for its limit of one file, or for handlers that store artifacts
    themselves. References that the store returns may stand in answers: the routing takes them for what they are."""

    def use_store(self, store: ArtifactStore) -> None:
        """Use this store from now on; a session calls it before it opens the transport."""


class WrappedTransport(Transport):
    """A transport that passes everything on to ``wrapped``. Subclasses do more in some of the methods."""

    def __init__(self, wrapped: Transport) -> None:
        self.wrapped = wrapped
        self._follow()

    def _follow(self) -> None:
        """Take the name and the features of the wrapped transport, which may change with each operation: ``auto``
        decides when the page has loaded."""
        self.name, self.features = self.wrapped.name, self.wrapped.features

    def use_store(self, store: ArtifactStore) -> None:
        """Give the wrapped transport the store of the session, if it takes one."""
        if isinstance(self.wrapped, TakesStore):
            self.wrapped.use_store(store)

    @property
    def url(self) -> str | None:
        """The address of the wrapped transport."""
        return self.wrapped.url

    def receiver(self, message: Message) -> str | None:
        """Return the address of who would receive a message from the wrapped transport."""
        return self.wrapped.receiver(message)

    @property
    def server_address(self) -> tuple[str, int] | None:
        """The address at which the wrapped transport reached the app."""
        return self.wrapped.server_address

    @property
    def rungs(self) -> Mapping[str, int]:
        """The counts of the wrapped transport."""
        return self.wrapped.rungs

    async def open(self) -> None:
        """Open the wrapped transport."""
        await self.wrapped.open()
        self._follow()

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self.wrapped.aclose()

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Pass a request on."""
        return await self.wrapped.request(message, timeout=timeout)

    async def notify(self, message: Message) -> None:
        """Pass a message on."""
        await self.wrapped.notify(message)

    async def events(self) -> AsyncIterator[Message]:
        """Yield the events of the wrapped transport."""
        async for message in self.wrapped.events():
            yield message

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Fetch content with the wrapped transport."""
        await self.wrapped.save(handle, path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        """Release content of the wrapped transport."""
        await self.wrapped.release(handle)

    async def cookies(self, url: str, sender: Sender | None = None) -> Mapping[str, str]:
        """Return the cookies of the wrapped transport."""
        return await (self.wrapped.cookies(url) if sender is None else self.wrapped.cookies(url, sender))
