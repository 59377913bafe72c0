"""Resources of connected servers over HTTP: listed, read, watched."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.support.apps import PDF
from tests.support.resources import LONG, ResourceApp
from tests.support.web_client import running
from transports.artifacts import MemoryStore


def path(session: str, uri: str = "", **query: object) -> str:
    rest = f"/{quote(uri, safe='')}" if uri else ""
    return f"/resources/{session}{rest}{'?fresh' if query.get('fresh') else ''}"


@pytest.mark.requirement("R2-6.3c", "R2-6.3d")
async def test_resources_are_listed_and_read() -> None:
    server = ResourceApp()
    async with running(MemoryStore(), server) as web:
        session = await web.connect()
        (app,) = (await web.get("/apps")).json["apps"]
        assert app["resources"] is True
        for namespace in (session, "In-process%20app"):
            listed = (await web.get(path(namespace))).json
            assert listed["session"] == session and listed["total"] == len(server.resources) == 4
            assert listed["resources"][0]["uri"] == "note:///a b?c=d" and listed["resources"][0]["size"] == 5
            assert listed["templates"][0]["uriTemplate"] == "note:///{name}" and listed["watched"] == []
        (short,) = (await web.get(path(session, "note:///a b?c=d"))).json["contents"]
        assert short == {"uri": "note:///a b?c=d", "mime_type": "text/plain", "text": "short", "artifact": None}
        (file,) = (await web.get(path(session, "file:///x/report.pdf"))).json["contents"]
        assert file["text"] is None and file["artifact"]["mime_type"] == "application/pdf"
        assert (await web.get(file["artifact"]["url"])).body == PDF
        (long,) = (await web.get(path(session, "note:///long"))).json["contents"]
        assert long["text"] is None and (await web.get(long["artifact"]["url"])).body == LONG.encode()
        # what was read is not read again, unless that is asked for
        reads = server.reads
        await web.get(path(session, "file:///x/report.pdf"))
        assert server.reads == reads
        await web.get(path(session, "file:///x/report.pdf", fresh=True))
        assert server.reads == reads + 1


async def test_unreadable_resource_returns_error_status() -> None:
    async with running(MemoryStore(), ResourceApp) as web:
        session = await web.connect()
        assert ((gone := await web.get(path(session, "note:///gone"))).status, gone.code) == (404, "NOT_FOUND")
        assert (await web.get(path(session, "note:///broken"))).status == 502
        assert (await web.get(path("nobody"))).status == 404
        for body in ({}, {"watch": 1}, {"watch": "a", "unwatch": "b"}, {"read": "note:///long"}):
            assert (await web.post(path(session), body)).status == 400, body
        await web.connect()
        twice = await web.get(path("In-process%20app"))
        assert twice.status == 409 and session in twice.json["error"]["message"]
    async with running(MemoryStore(), {}) as web:  # an app without resources
        session = await web.connect()
        listed = (await web.get(path(session))).json
        assert (listed["available"], listed["resources"]) == (False, [])
        assert (unsupported := await web.get(path(session, "note:///a"))).status == 400
        assert unsupported.code == "NOT_SUPPORTED"


@pytest.mark.requirement("R2-5.7d", "R2-6.3g")
async def test_watched_resource_changes_emit_events_and_clear_cache() -> None:
    server = ResourceApp()
    async with running(MemoryStore(), server) as web:
        session = await web.connect()
        await web.get(path(session, "note:///long"))
        assert (await web.post(path(session), {"watch": "note:///long"})).status == 204
        assert (await web.get(path(session))).json["watched"] == ["note:///long"] == sorted(server.subscribed)
        async with web.listen() as events:
            server.change("note:///long")
            _, _, data = await events.until("resource_updated")
            assert data == {"session": session, "uri": "note:///long"}
            reads = server.reads
            await web.get(path(session, "note:///long"))
            assert server.reads == reads + 1
            server.change_list()
            assert (await events.until("resources_changed"))[2] == {"session": session}
        assert (await web.post(path(session), {"unwatch": "note:///long"})).status == 204
        assert not server.subscribed


@pytest.mark.requirement("R2-6.3e")
async def test_server_of_other_session_is_not_found() -> None:
    async with running(MemoryStore(), ResourceApp) as web:
        mine, theirs = await web.connect(), await web.connect()
        guest = await web.guest(session=mine)
        assert (await guest.get(path(mine, "note:///long"))).status == 200
        for answer in (
            await guest.get(path(theirs)),
            await guest.get(path(theirs, "note:///long")),
            await guest.post(path(theirs), {"watch": "note:///long"}),
        ):
            assert (answer.status, answer.code) == (404, "SESSION_INVALID")
        assert (await guest.get(path("In-process%20app"))).json["session"] == mine  # the only one that it sees
        assert (await web.get(path(mine), token=False)).status == 401
