"""Behaviours of a session that learns the app's capabilities."""

from __future__ import annotations

import asyncio

from ...errors import CapabilityError, UsageError
from ...protocol import CapabilitiesChanged
from ._behaviour import Subject, behaviour, expect, raises, value

_CHANGED = "notifications/capabilities/list_changed"


@behaviour("the session knows the app's capabilities", "docs/protocol.md 2.2, 2.4")
async def _known(subject: Subject) -> None:
    async with subject.connect() as session:
        expected = {"data.csv", "export.pdf", "file.generate", "job.run"}
        expect(expected & set(session.capabilities), expected, "the capabilities of the reference app")
        expect(session.capabilities["data.csv"].name, "data.csv", "the name of a capability")


@behaviour("the session knows the app", "docs/protocol.md 2.2")
async def _app(subject: Subject) -> None:
    async with subject.connect() as session:
        expect(session.info.name, "Workbench", "the name of the reference app")
        expect(bool(session.info.id and session.info.version and session.session_id), True, "id, version and sessionId")


@behaviour("capabilities come with their schemas", "docs/protocol.md 2.5")
async def _schemas(subject: Subject) -> None:
    async with subject.connect() as session:
        capability = session.capabilities["data.csv"]
        expect("rows" in value(capability.input_schema, "properties"), True, "whether inputSchema has rows")
        expect(bool(capability.description), True, "whether there is a description")


@behaviour("parameters are checked before they travel", "docs/protocol.md 3.6")
async def _checked(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(UsageError, "data.csv with rows that are not a list", code="INVALID_PARAMS"):
            await session.call("data.csv", {"rows": 7})


@behaviour("an unknown capability is the app's own error", "docs/protocol.md 3.5, 8.1")
async def _unknown(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CapabilityError, "a call of export.pfd", code="UNKNOWN_CAPABILITY") as caught:
            await session.call("export.pfd")
        expect("export.pdf" in caught.error.alternatives, True, "whether export.pdf is offered instead")


@behaviour("capabilities come and go", "docs/protocol.md 4.3, 4.5")
async def _come_and_go(subject: Subject) -> None:
    notifications: list[str] = []
    session = subject.connect(on_notification=lambda notification: notifications.append(notification.event))
    async with session, session.events() as events:
        for available in (True, False):
            answer = (await session.call("app.toggle")).data
            expect(value(answer, "available"), available, "the answer of app.toggle")
            async with asyncio.timeout(5):
                while not isinstance(change := await anext(events), CapabilitiesChanged):
                    pass
            names = change.added if available else change.removed
            expect(names, ("extra.hello",), "the added capabilities" if available else "the removed capabilities")
            expect("extra.hello" in session.capabilities, available, "whether extra.hello is known")
            if available:
                expect([*(await session.call("extra.hello")).artifacts], [""], "the artifacts of extra.hello")
    expect(notifications, [_CHANGED, _CHANGED], "the notifications")
