"""Progress of a call while the files behind its answer's ``downloadUrl`` are downloaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.conftest import Connect
from tests.support.apps import AtAddress, answering
from transports import CallFinished, Progress
from transports.session._dispatch import DownloadProgress

SIZE = 3 << 20


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """A server of one file, which says its length at ``/known`` only."""

    async def known(request: web.Request) -> web.Response:
        return web.Response(body=bytes(SIZE))

    async def unknown(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(3):
            await response.write(bytes(SIZE // 3))
        return response

    app = web.Application()
    app.add_routes([web.get("/known", known), web.get("/unknown", unknown)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.mark.requirement("R1-4d", "R1-4h", "R1-13b")
async def test_download_is_reported_as_progress_of_its_call(app_of: Connect, address: str) -> None:
    answer = {
        "report": {"downloadUrl": "known", "mimeType": "application/pdf", "size": SIZE},
        "pages": [{"downloadUrl": "unknown", "mimeType": "image/png"}],
    }
    seen: list[Progress] = []
    of_session: list[Progress] = []
    async with (
        app_of(AtAddress(address, {"make": answering(answer)}), on_progress=of_session.append) as app,
        app.events() as events,
    ):
        result = await app.call("make", on_progress=seen.append, call_id="the-call")
        assert [ref.size_bytes for ref in result.artifacts.values()] == [SIZE, SIZE]
        told = []
        async for event in events:
            if isinstance(event, Progress):
                told.append(event)
            if isinstance(event, CallFinished):
                break
    assert seen == of_session == told  # all of it before the call returned
    assert {(one.call, one.stage) for one in seen} == {("the-call", "download")}
    report = [one for one in seen if one.status == "report"]
    assert {one.total for one in report} == {SIZE}
    assert report[-1].progress == SIZE and report[-1].fraction == 1.0
    assert all(one.progress < two.progress for one, two in pairwise(report) if one.progress and two.progress)
    page = [one for one in seen if one.status == "pages.0"]
    assert page and {one.total for one in page} == {None} and page[0].progress
    assert page[0].text == "download · pages.0"


def test_download_progress_is_reported_at_start_end_and_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("transports.session._dispatch.time.monotonic", lambda: clock[0])
    seen: list[Progress] = []
    report = DownloadProgress(seen.append, "call")
    for received in range(1, 101):
        clock[0] += 1 / 64
        report("a", received, 100)
    report("b", 1, None)
    report("b", 2, None)
    assert [one.progress for one in seen if one.status == "a"] == [*range(1, 100, 7), 100]
    assert [one.progress for one in seen if one.status == "b"] == [1]
    report("", 7, 9)
    assert (seen[-1].status, seen[-1].text, seen[-1].total) == (None, "download", 9)
