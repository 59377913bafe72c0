"""Behaviours of a session that learns the app's capabilities, and of its calls without content."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from ...errors import CapabilityError, UsageError
from ...protocol._capabilities import CapabilitiesChanged
from ._behaviour import Subject, behaviour, value

_CHANGED = "notifications/capabilities/list_changed"


@behaviour("the session knows the app's capabilities", "docs/protocol.md 2.2, 2.4")
async def _known(subject: Subject) -> None:
    async with subject.connect() as session:
        expected = {"data.csv", "export.pdf", "file.generate", "job.run"}
        assert expected & set(session.capabilities) == expected
        assert session.capabilities["data.csv"].name == "data.csv"


@behaviour("the session knows the app", "docs/protocol.md 2.2")
async def _app(subject: Subject) -> None:
    async with subject.connect() as session:
        assert session.info.name == "Workbench"
        assert session.info.id and session.info.version and session.session_id


@behaviour("capabilities come with their schemas", "docs/protocol.md 2.5")
async def _schemas(subject: Subject) -> None:
    async with subject.connect() as session:
        capability = session.capabilities["data.csv"]
        assert "rows" in value(capability.input_schema, "properties")
        assert capability.description


@behaviour("parameters are checked before they travel", "docs/protocol.md 3.6")
async def _checked(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(UsageError):
            await session.call("data.csv", {"rows": 7})


@behaviour("an unknown capability is the app's own error", "docs/protocol.md 3.5, 8.1")
async def _unknown(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CapabilityError) as caught:
            await session.call("export.pfd")
        assert caught.value.code == "UNKNOWN_CAPABILITY"
        assert "export.pdf" in caught.value.alternatives


@behaviour("capabilities come and go", "docs/protocol.md 4.3, 4.5")
async def _come_and_go(subject: Subject) -> None:
    notifications: list[str] = []
    session = subject.connect(on_notification=lambda notification: notifications.append(notification.event))
    async with session, session.events() as events:
        for available in (True, False):
            answer = (await session.call("app.toggle")).data
            assert value(answer, "available") == available
            async with asyncio.timeout(5):
                while not isinstance(change := await anext(events), CapabilitiesChanged):
                    pass
            names = change.added if available else change.removed
            assert names == ("extra.hello",)
            assert ("extra.hello" in session.capabilities) == available
            if available:
                assert [*(await session.call("extra.hello")).artifacts] == [""]
    assert notifications == [_CHANGED, _CHANGED]


@behaviour("JSON results become files", "docs/protocol.md 12.1")
async def _json_results(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("data.json", {"csv": "name,sold\r\ntea,12\r\n"})
        assert result.data == {"items": [{"name": "tea", "sold": 12}], "count": 1}
        stored = json.loads(Path(str(result.artifacts[""].path)).read_text(encoding="utf-8"))
        assert stored == result.data


@behaviour("a result names its transport", "transports.Result.transport")
async def _names_its_transport(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("file.list")
        assert result.transport == session.transport.name


@behaviour("text arrives as it was sent", "docs/protocol.md 1.6; RFC 8259 §8.1")
async def _text_is_kept(subject: Subject) -> None:
    sent = "é 世界 𝄞 ‮ \u2028 \x00 \\ \" ' <script> %s {} \t\r\n"
    async with subject.connect() as session:
        rows = [{"text": sent, "ключ 🎵": "value"}]
        content = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        assert Path(str(content.path)).read_bytes().decode().count("世界 𝄞") == 1
        answered = (await session.call("form.ask", {"method": "contract/echo", "params": {"text": sent}})).data
        assert value(answered, "response", "success") is False


@behaviour("text comes back as it was answered", "docs/protocol.md 1.6; RFC 8259 §8.1; docs/faults.md 17")
async def _text_back(subject: Subject) -> None:
    async with subject.connect() as session:
        answer = (await session.call("shape", {"shape": "nonAscii"})).data
        assert value(answer, "text") == "é 世界 𝄞 🎼"
        assert value(answer, "ключ 🎵") == "value"


@behaviour("numbers, null and empty values arrive as they were sent", "docs/protocol.md 1.6; RFC 8259")
async def _values(subject: Subject) -> None:
    sent: dict[str, object] = {"zero": 0, "negative": -1.5, "large": 2**53 - 1, "small": 1e-300}
    sent |= {"nothing": None, "yes": True, "no": False, "empty": "", "list": [], "object": {}}
    sent |= {"nested": [[1, [2, {"three": 3}]]]}
    async with subject.connect() as session:
        answered = (await session.call("fault.bad_answer", {"value": {"success": True, "data": sent}})).data
        assert answered == sent


@behaviour("a large answer of plain JSON arrives whole", "docs/protocol.md 1.3; docs/faults.md 22")
async def _large_json(subject: Subject) -> None:
    async with subject.connect() as session:
        rows = value((await session.call("fault.big_json", {"megabytes": 3})).data, "rows")
        assert (len(rows), value(rows, -1, "row")) == (3072, 3071)


@behaviour("an answer without data is a success", "docs/protocol.md 3.3")
async def _without_data(subject: Subject) -> None:
    async with subject.connect() as session:
        assert (await session.call("fault.crash_half")).data is None


@behaviour("calls at once each get their own answer", "docs/protocol.md 3.1; docs/faults.md 19")
async def _at_once(subject: Subject) -> None:
    async with subject.connect() as session:
        calls = [session.call("file.digest", {"file": str(n).encode()}) for n in range(40)]
        sums = [value(result.data, "sha256") for result in await asyncio.gather(*calls)]
        assert sums == [hashlib.sha256(str(n).encode()).hexdigest() for n in range(40)]


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
        assert not slow.done()
        slow.cancel()
        await asyncio.wait((slow,), timeout=10)


@behaviour("an error of the app keeps its code and message", "docs/protocol.md 3.5")
async def _app_errors(subject: Subject) -> None:
    async with subject.connect() as session:
        error = {"code": "PERMISSION_DENIED", "message": "not today", "details": {"why": "Sunday"}, "retryable": False}
        with pytest.raises(CapabilityError) as caught:
            await session.call("fault.bad_answer", {"value": {"success": False, "error": error}})
        assert caught.value.code == "PERMISSION_DENIED"
        assert "not today" in caught.value.message
        assert caught.value.details.get("why") == "Sunday"


@behaviour("an exception of the app is a CapabilityError", "docs/protocol.md 3.3, 8.1")
async def _thrown(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CapabilityError) as caught:
            await session.call("fault.throws", {"message": "broken"})
        assert caught.value.code == "OPERATION_FAILED"
        with pytest.raises(CapabilityError) as caught:
            await session.call("fault.rejects_string")
        assert caught.value.code == "OPERATION_FAILED"
        await session.call("file.list")
