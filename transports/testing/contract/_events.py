"""Behaviours of progress, notifications and questions of the app (elicitation)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ...errors import CapabilityError
from ...protocol._payloads import ElicitationRequest, Notification, Progress
from ._behaviour import Subject, behaviour, until, value

_STARTED = "notifications/operation/started"
_COMPLETED = "notifications/operation/completed"


@behaviour("progress comes in order and each once", "docs/protocol.md 4.4, 4.6")
async def _progress(subject: Subject) -> None:
    seen: list[Progress] = []
    async with subject.connect() as session:
        await session.call("job.run", {"steps": 5, "delay": 1}, on_progress=seen.append)
        await until(lambda: len(seen) >= 5, "five reports of progress arrive")
    assert [item.progress for item in seen] == [1, 2, 3, 4, 5]
    assert [item.fraction for item in seen] == [0.2, 0.4, 0.6, 0.8, 1.0]


@behaviour("progress belongs to its call", "docs/protocol.md 4.4")
async def _progress_of_two(subject: Subject) -> None:
    seen: dict[str, list[str | None]] = {"one": [], "two": []}
    async with subject.connect() as session:
        await asyncio.gather(
            *(
                session.call(
                    "job.run",
                    {"steps": 3, "delay": 5, "label": label},
                    on_progress=lambda item, label=label: seen[label].append(item.stage),  # type: ignore[misc]
                )
                for label in seen
            )
        )
        await until(lambda: sum(map(len, seen.values())) >= 6, "six reports of progress arrive")
    assert seen == {"one": ["one"] * 3, "two": ["two"] * 3}


@behaviour("a progress callback that raises or blocks breaks no call", "transports.Session.call")
async def _bad_callback(subject: Subject) -> None:
    async def callback(item: Progress) -> None:
        if item.progress == 1:
            raise ValueError("a callback of the contract suite fails on purpose")
        await asyncio.sleep(3600)

    async with subject.connect() as session:
        async with asyncio.timeout(subject.timeout / 2):
            result = await session.call("job.run", {"steps": 2, "delay": 1}, on_progress=callback)
        assert value(result.data, "steps") == 2


@behaviour("notifications reach the session", "docs/protocol.md 4.3")
async def _notifications(subject: Subject) -> None:
    seen: list[Notification] = []
    async with subject.connect(on_notification=seen.append) as session:
        await session.call("job.run", {"steps": 1, "delay": 1, "label": "mine"})
        await until(lambda: len(seen) >= 2, "two notifications arrive")
    assert [notification.event for notification in seen] == [_STARTED, _COMPLETED]
    assert value(seen[0].data, "label") == "mine"


@behaviour("events() yields the events of a session", "transports.Session.events")
async def _listened(subject: Subject) -> None:
    seen: list[str] = []

    async def listen() -> None:
        async for event in events:
            seen.append(event.event if isinstance(event, Notification) else type(event).__name__)

    async with subject.connect() as session, session.events() as events:
        listening = asyncio.ensure_future(listen())
        await session.call("job.run", {"steps": 2, "delay": 1})
        await until(lambda: len(seen) >= 6, "six events arrive")
        await session.aclose()
        async with asyncio.timeout(5):
            await listening
    expected = ["CallStarted", _STARTED, "Progress", "Progress", _COMPLETED, "CallFinished"]
    assert sorted(seen) == sorted(expected)


@behaviour("a question is answered", "docs/protocol.md 5.1, 5.2")
async def _answered(subject: Subject) -> None:
    requests: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        requests.append(request)
        return {"success": True, "data": {"value": "blue"}}

    question = {"method": "elicitation/input", "params": {"message": "Colour?"}}
    async with subject.connect(on_elicitation=answer) as session:
        response = value((await session.call("form.ask", question)).data, "response")
        assert value(response, "data") == {"value": "blue"}
    assert [request.params.get("message") for request in requests] == ["Colour?"]


@behaviour("several questions at once each get their own answer", "docs/protocol.md 5.4, 6.2")
async def _answered_at_once(subject: Subject) -> None:
    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        return {"success": True, "data": {"value": f"to {request.params.get('message')}"}}

    async with subject.connect(on_elicitation=answer) as session:
        questions = [{"method": "elicitation/input", "params": {"message": str(n)}} for n in range(4)]
        results = await asyncio.gather(*(session.call("form.ask", question) for question in questions))
    seen = [value(result.data, "response", "data", "value") for result in results]
    assert seen == ["to 0", "to 1", "to 2", "to 3"]


@behaviour("a question without a handler is declined", "docs/protocol.md 5.3")
async def _declined(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CapabilityError) as caught:
            await session.call("files.clear")
        assert caught.value.cancelled
        assert len(value((await session.call("file.list")).data, "files")) > 0


@behaviour("the app's default answers a question without a handler", "docs/protocol.md 5.3")
async def _default(subject: Subject) -> None:
    question = {"method": "elicitation/input", "params": {"message": "Colour?", "default": "red"}}
    async with subject.connect() as session:
        response = value((await session.call("form.ask", question)).data, "response")
        assert value(response, "data", "value") == "red"


@behaviour("a handler that raises declines", "docs/protocol.md 5.4")
async def _handler_raises(subject: Subject) -> None:
    async def answer(request: ElicitationRequest) -> Mapping[str, object]:
        raise ValueError("no answer")

    question = {"method": "elicitation/input", "params": {"message": "Colour?"}}
    async with subject.connect(on_elicitation=answer) as session:
        response = value((await session.call("form.ask", question)).data, "response")
        assert value(response, "success") is False
