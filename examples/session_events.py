"""Follow the events of a session: progress, changed capabilities, repeated calls, and what an app shows its user."""

import asyncio
from collections.abc import AsyncIterator

from transports import CapabilitiesChanged, ConnectionChanged, Effect, Event, Progress, Retrying, connect
from webapp_fixture import serve


async def print_events(events: AsyncIterator[Event]) -> None:
    async for event in events:
        match event:
            case Progress():
                print("progress", "-" if event.fraction is None else f"{event.fraction:.0%}")
            case CapabilitiesChanged():
                print("new:", ", ".join(event.added) or "-", "gone:", ", ".join(event.removed) or "-")
            case ConnectionChanged():
                print("connected" if event.connected else f"lost: {event.reason}")
            case Retrying():
                print(f"{event.capability} again in {event.delay:g} s: {event.error.message}")
            case Effect():
                print(event.kind, dict(event.detail))


async def main() -> None:
    async with serve() as fixture, connect(fixture.url) as app, app.events() as events:
        printing = asyncio.create_task(print_events(events))
        await app.call("job.run", {"steps": 2, "delay": 1})
        await app.call("app.toggle")  # the app now offers one capability more
        result = await app.call("fault.alert", {"kind": "confirm"})  # a dialog, which nobody can answer
        print([(effect.kind, effect.detail["answer"]) for effect in result.effects])
        await app.aclose()  # the stream ends with the session
        await printing


asyncio.run(main())
