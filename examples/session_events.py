"""What happens in a session beside answers: changes of capabilities, repetitions, what an app does to its user."""

import asyncio
from collections.abc import AsyncIterator

from transports import CapabilitiesChanged, ConnectionChanged, Effect, Event, Progress, Retrying, connect
from webapp_fixture import serve


async def tell(events: AsyncIterator[Event]) -> None:
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
        telling = asyncio.create_task(tell(events))
        await app.call("job.run", {"steps": 2, "delay": 1})
        await app.call("app.toggle")  # the app has one capability more
        result = await app.call("fault.alert", {"kind": "confirm"})  # nobody is there to press a button
        print([(effect.kind, effect.detail["answer"]) for effect in result.effects])
        await app.aclose()  # the stream ends with the session
        await telling


asyncio.run(main())
