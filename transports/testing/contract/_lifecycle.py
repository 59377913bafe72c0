"""Behaviours of opening and closing a transport, and of its leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time

import pytest

from ...base import Features, Transport
from ...errors import ABPError, Disconnected, TransportError, UsageError
from ...protocol.messages import Message
from ._behaviour import Subject, behaviour, call, initialize_request, initialized, until

#: Maximum seconds of closing, regardless of the app.
_CLOSING = 15.0


@behaviour("it has a name, features and an address", "transports.base.Transport")
async def _says_what_it_is(subject: Subject) -> None:
    async with subject.new_transport() as transport:
        assert re.fullmatch(r"[a-z][a-z0-9+._-]*", transport.name), "name is as in a URL scheme"
        assert type(transport.features) is Features
        if transport.url is not None:
            assert re.match(r"(https?|file|chrome-extension)://", transport.url), "url is the base of download URLs"


@behaviour("closing twice is harmless", "transports.base.Transport.aclose")
async def _closes_twice(subject: Subject) -> None:
    async with initialized(subject) as transport:
        pass
    await transport.aclose()
    await transport.aclose()


@behaviour("closing what was never opened is harmless", "transports.base.Transport.aclose")
async def _closes_unopened(subject: Subject) -> None:
    await subject.new_transport().aclose()


@behaviour("no task outlives it", "transports.base.Transport.aclose")
async def _leaves_no_task(subject: Subject) -> None:
    before = asyncio.all_tasks()
    async with subject.connect() as session:
        await session.call("file.list")
    await session.aclose()
    await until(lambda: not _new_tasks(before), "the tasks that were begun end")


def _new_tasks(before: set[asyncio.Task[object]]) -> list[asyncio.Task[object]]:
    """Return the tasks started since ``before``, except those of a server in this process, which may keep them."""
    new = asyncio.all_tasks() - before
    return [task for task in new if "RequestHandler" not in str(task.get_coro())]


@behaviour("its events end when it closes", "transports.base.Transport.events")
async def _events_end(subject: Subject) -> None:
    async def listen(transport: Transport) -> None:
        async for _ in transport.events():
            pass

    async with initialized(subject) as transport:
        listening = asyncio.ensure_future(listen(transport))
        await asyncio.sleep(0)
    await until(listening.done, "the iteration over events() ends")
    await listening


@behaviour("a request after closing fails", "transports.base.Transport.request")
async def _refuses_after_closing(subject: Subject) -> None:
    async with initialized(subject) as transport:
        pass
    with pytest.raises(TransportError):
        await transport.request(call("file.list", "1"), timeout=5)


@behaviour("a call after the session closed raises DISCONNECTED", "docs/protocol.md 8.2")
async def _session_refuses_after_closing(subject: Subject) -> None:
    async with subject.connect() as session:
        pass
    with pytest.raises(Disconnected):
        await session.call("file.list")


@behaviour("a call under way fails when it is closed", "transports.base.Transport.aclose")
async def _closing_fails_calls(subject: Subject) -> None:
    transport = subject.new_transport()
    await transport.open()
    try:
        await transport.request(initialize_request(), timeout=subject.answer_timeout)
        waiting = asyncio.ensure_future(transport.request(call("job.wait", "1"), timeout=subject.answer_timeout))
        await asyncio.sleep(0.1)
        started = time.monotonic()
    finally:
        await transport.aclose()
    assert time.monotonic() - started <= _CLOSING, f"closing took longer than {_CLOSING:g} s"
    await until(waiting.done, "the call under way ends", seconds=_CLOSING)
    with contextlib.suppress(ABPError):  # the only valid reply is one that the call was stopped
        reply = (await waiting).payload
        assert isinstance(reply, dict) and reply.get("success") is False


@behaviour("two connections know nothing of each other", "transports.base.Transport; docs/protocol.md 2.3")
async def _connections_are_apart(subject: Subject) -> None:
    async with subject.connect() as first, subject.connect() as second:
        assert first.session_id != second.session_id
        results = await asyncio.gather(
            first.call("data.json", {"csv": "a\r\n1\r\n"}), second.call("data.json", {"csv": "a\r\n2\r\n"})
        )
        assert [str(result.data).count("2") for result in results] == [0, 1]
    async with subject.connect() as again:
        await again.call("file.list")


@behaviour("it has all the tools of a page or none", "transports.base.Features; transports.Session.screenshot")
async def _page_tools(subject: Subject) -> None:
    async with subject.connect() as session:
        if session.transport.features.page:
            for tool, made in (("image", session.screenshot()), ("document", session.render_to_pdf("<h1>Hi</h1>"))):
                assert [*(await made).artifacts] == [tool]
        else:
            with pytest.raises(UsageError):
                await session.screenshot()


@behaviour("it sends shutdown", "docs/protocol.md 2.3; transports.base.Transport.notify")
async def _says_goodbye(subject: Subject) -> None:
    async with initialized(subject) as transport:
        await transport.notify(Message("shutdown", {"reason": "the contract suite is done"}))
