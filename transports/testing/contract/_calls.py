"""Behaviours of a session that learns the app's capabilities, and of its calls without content."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

from ...errors import CapabilityError, UsageError
from ...protocol._capabilities import CapabilitiesChanged
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


@behaviour("JSON results become files", "docs/protocol.md 12.1")
async def _json_results(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("data.json", {"csv": "name,sold\r\ntea,12\r\n"})
        expect(result.data, {"items": [{"name": "tea", "sold": 12}], "count": 1}, "the answer")
        stored = json.loads(Path(str(result.artifacts[""].path)).read_text(encoding="utf-8"))
        expect(stored, result.data, "the stored file")


@behaviour("a result names its transport", "transports.Result.transport")
async def _names_its_transport(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("file.list")
        expect(result.transport, session.transport.name, "the transport of a result")


@behaviour("text arrives as it was sent", "docs/protocol.md 1.6; RFC 8259 §8.1")
async def _text(subject: Subject) -> None:
    sent = "é 世界 𝄞 ‮ \u2028 \x00 \\ \" ' <script> %s {} \t\r\n"
    async with subject.connect() as session:
        rows = [{"text": sent, "ключ 🎵": "value"}]
        content = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        expect(Path(str(content.path)).read_bytes().decode().count("世界 𝄞"), 1, "the text in the file")
        answered = (await session.call("form.ask", {"method": "contract/echo", "params": {"text": sent}})).data
        expect(value(answered, "response", "success"), False, "whether a question of no known kind was answered")


@behaviour("text comes back as it was answered", "docs/protocol.md 1.6; RFC 8259 §8.1; docs/faults.md 17")
async def _text_back(subject: Subject) -> None:
    async with subject.connect() as session:
        answer = (await session.call("shape", {"shape": "nonAscii"})).data
        expect(value(answer, "text"), "é 世界 𝄞 🎼", "text of the answer")
        expect(value(answer, "ключ 🎵"), "value", "the value of a key that is not ASCII")


@behaviour("numbers, null and empty values arrive as they were sent", "docs/protocol.md 1.6; RFC 8259")
async def _values(subject: Subject) -> None:
    sent: dict[str, object] = {"zero": 0, "negative": -1.5, "large": 2**53 - 1, "small": 1e-300}
    sent |= {"nothing": None, "yes": True, "no": False, "empty": "", "list": [], "object": {}}
    sent |= {"nested": [[1, [2, {"three": 3}]]]}
    async with subject.connect() as session:
        answered = (await session.call("fault.bad_answer", {"value": {"success": True, "data": sent}})).data
        expect(answered, sent, "the values that came back")


@behaviour("a large answer of plain JSON arrives whole", "docs/protocol.md 1.3; docs/faults.md 22")
async def _large_json(subject: Subject) -> None:
    async with subject.connect() as session:
        rows = value((await session.call("fault.big_json", {"megabytes": 3})).data, "rows")
        expect((len(rows), value(rows, -1, "row")), (3072, 3071), "rows of the answer")


@behaviour("an answer without data is a success", "docs/protocol.md 3.3")
async def _without_data(subject: Subject) -> None:
    async with subject.connect() as session:
        expect((await session.call("fault.crash_half")).data, None, "the data of an answer that has none")


@behaviour("calls at once each get their own answer", "docs/protocol.md 3.1; docs/faults.md 19")
async def _at_once(subject: Subject) -> None:
    async with subject.connect() as session:
        calls = [session.call("file.digest", {"file": str(n).encode()}) for n in range(40)]
        sums = [value(result.data, "sha256") for result in await asyncio.gather(*calls)]
        expect(sums, [hashlib.sha256(str(n).encode()).hexdigest() for n in range(40)], "the answers of 40 calls")


@behaviour("a slow call holds up no quick one", "docs/protocol.md 3.1; transports.base.Transport.request")
async def _slow_and_quick(subject: Subject) -> None:
    async with subject.connect() as session:
        slow = asyncio.ensure_future(session.call("fault.slow", {"ms": 8000}))
        await asyncio.sleep(0.05)
        try:
            async with asyncio.timeout(0.4 * subject.answer_timeout):
                await session.call("data.json", {"csv": "a\r\n1\r\n"})
        except TimeoutError:
            raise AssertionError("the quick call waited for the slow one") from None
        expect(slow.done(), False, "whether the slow call had ended before the quick one")
        slow.cancel()
        await asyncio.wait((slow,), timeout=10)


@behaviour("an error of the app keeps its code and message", "docs/protocol.md 3.5")
async def _app_errors(subject: Subject) -> None:
    async with subject.connect() as session:
        error = {"code": "PERMISSION_DENIED", "message": "not today", "details": {"why": "Sunday"}, "retryable": False}
        with raises(CapabilityError, "a refusal of the app", code="PERMISSION_DENIED") as caught:
            await session.call("fault.bad_answer", {"value": {"success": False, "error": error}})
        expect("not today" in caught.error.message, True, "whether the app's message is kept")
        expect(caught.error.details.get("why"), "Sunday", "the reason in its details")


@behaviour("an exception of the app is a CapabilityError", "docs/protocol.md 3.3, 8.1")
async def _thrown(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CapabilityError, "a handler that throws", code="OPERATION_FAILED"):
            await session.call("fault.throws", {"message": "broken"})
        with raises(CapabilityError, "a handler that rejects with a string", code="OPERATION_FAILED"):
            await session.call("fault.rejects_string")
        await session.call("file.list")
