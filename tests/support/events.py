"""The events of a session as a list."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from transports import Event, Session


@asynccontextmanager
async def collect_events(session: Session) -> AsyncIterator[tuple[Session, list[Event]]]:
    """Open a session and close it; when the block has ended, the list has all of its events."""
    collected: list[Event] = []

    async def collect() -> None:
        async for event in events:
            collected.append(event)

    app = await session
    async with app.events() as events:
        collecting = asyncio.ensure_future(collect())
        try:
            yield app, collected
        finally:
            await app.aclose()
        await asyncio.wait_for(collecting, 2)
