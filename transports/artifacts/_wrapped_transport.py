"""Protocol for transports that use the store of their session, and the base class of transport wrappers."""

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
    """Protocol for a transport that uses the session's store: for its size limit, or for handlers that store artifacts
    themselves. Answers may contain the references that the store returned; the routing recognises them."""

    def use_store(self, store: ArtifactStore) -> None:
        """Set the store. A session calls this before it opens the transport."""


class WrappedTransport(Transport):
    """A transport that delegates everything to ``wrapped``. Subclasses extend some of the methods."""

    def __init__(self, wrapped: Transport) -> None:
        self.wrapped = wrapped
        self._follow()

    def _follow(self) -> None:
        """Copy the name and the features of the wrapped transport. They may change with an operation: ``auto`` chooses
        its transport when the page has loaded."""
        self.name, self.features = self.wrapped.name, self.wrapped.features

    def use_store(self, store: ArtifactStore) -> None:
        """Pass the store of the session to the wrapped transport, if that implements :class:`TakesStore`."""
        if isinstance(self.wrapped, TakesStore):
            self.wrapped.use_store(store)

    @property
    def url(self) -> str | None:
        """URL of the wrapped transport."""
        return self.wrapped.url

    def receiver(self, message: Message) -> str | None:
        """Return the address of the receiver of a message of the wrapped transport."""
        return self.wrapped.receiver(message)

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Address at which the wrapped transport reached the app."""
        return self.wrapped.server_address

    @property
    def rungs(self) -> Mapping[str, int]:
        """Number of contents by rung of the wrapped transport."""
        return self.wrapped.rungs

    async def open(self) -> None:
        """Open the wrapped transport."""
        await self.wrapped.open()
        self._follow()

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self.wrapped.aclose()

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Delegate a request."""
        return await self.wrapped.request(message, timeout=timeout)

    async def notify(self, message: Message) -> None:
        """Delegate a message."""
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
