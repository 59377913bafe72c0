"""What the app can do, as a session learns it."""

from __future__ import annotations

import asyncio

from ...errors import CapabilityError, UsageError
from ...protocol.capabilities import CapabilitiesChanged
from .behaviour import Subject, behaviour, expect, raises, value

_CHANGED = "notifications/capabilities/list_changed"


@behaviour("the session knows the app's capabilities", 'PROTOCOL "The page object": initialize, listCapabilities')
async def known(subject: Subject) -> None:
    async with subject.connect() as session:
        wanted = {"data.csv", "export.pdf", "file.generate", "job.run"}
        expect(wanted & set(session.capabilities), wanted, "the capabilities of the reference app")
        expect(session.capabilities["data.csv"].name, "data.csv", "the name of a capability")


@behaviour("the session knows the app", 'PROTOCOL "The page object": app {id, name, version}')
async def app(subject: Subject) -> None:
    async with subject.connect() as session:
        expect(session.info.name, "Workbench", "the name of the reference app")
        expect(bool(session.info.id and session.info.version and session.session_id), True, "id, version and sessionId")


@behaviour("capabilities come with their schemas", 'PROTOCOL "The page object": inputSchema, description')
async def schemas(subject: Subject) -> None:
    async with subject.connect() as session:
        capability = session.capabilities["data.csv"]
        expect("rows" in value(capability.input_schema, "properties"), True, "whether inputSchema has rows")
        expect(bool(capability.description), True, "whether there is a description")


@behaviour("parameters are checked before they travel", "PROTOCOL: INVALID_PARAMS; inputSchema")
async def checked(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(UsageError, "data.csv with rows that are no list", code="INVALID_PARAMS"):
            await session.call("data.csv", {"rows": 7})


@behaviour("an unknown capability is the app's own error", "PROTOCOL: UNKNOWN_CAPABILITY")
async def unknown(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CapabilityError, "a call of export.pfd", code="UNKNOWN_CAPABILITY") as caught:
            await session.call("export.pfd")
        expect("export.pdf" in caught.error.alternatives, True, "whether export.pdf is offered instead")


@behaviour("capabilities come and go", 'PROTOCOL "App → client": list_changed')
async def come_and_go(subject: Subject) -> None:
    told: list[str] = []
    session = subject.connect(on_notification=lambda notification: told.append(notification.event))
    async with session, session.events() as events:
        for there in (True, False):
            answer = (await session.call("app.toggle")).data
            expect(value(answer, "available"), there, "what app.toggle answered")
            async with asyncio.timeout(5):
                while not isinstance(change := await anext(events), CapabilitiesChanged):
                    pass
            names = change.added if there else change.removed
            expect(names, ("extra.hello",), "what came" if there else "what went")
            expect("extra.hello" in session.capabilities, there, "whether extra.hello is known")
            if there:
                expect([*(await session.call("extra.hello")).artifacts], [""], "what extra.hello answered")
    expect(told, [_CHANGED, _CHANGED], "the notifications")
