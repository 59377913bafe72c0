"""Apps, calls, questions and events over HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.apps import ask_name, hang
from tests.support.eventually import eventually
from tests.support.web_client import Web, put_artifact, running
from transports import BinaryData, MemoryTransport, Session, connect
from transports.artifacts import ArtifactStore, LocalStore, Scope
from transports.memory import Call
from transports.surfaces.shared._activity import Activity, CallRecord, LogGap, StoreChange
from transports.surfaces.shared._apps import Apps
from transports.surfaces.shared._detached import CallLedger
from transports.surfaces.web._responses import artifact_meta


async def shout(params: Mapping[str, object], call: Call) -> object:
    return {"text": str(params["text"]).upper()}


async def steps(params: Mapping[str, object], call: Call) -> object:
    for n in (1, 2):
        await call.progress(progress=n, total=2, stage=f"step {n}")
        await asyncio.sleep(0.15)
    return {"file": {"content": "aGk=", "mimeType": "text/plain", "encoding": "base64", "filename": "hi.txt"}}


async def size(params: Mapping[str, object], call: Call) -> object:
    file = params["file"]
    assert isinstance(file, BinaryData)
    return {"size": len(file.read()), "name": file.filename}


APP = {"text.shout": shout, "steps": steps, "ask": ask_name, "forever": hang, "size": size}


@pytest.fixture
async def web(store: ArtifactStore) -> AsyncIterator[Web]:
    async with running(store, APP, question_timeout=5.0) as web:
        yield web


async def start(web: Web, session: str, capability: str, **more: object) -> str:
    """Begin a call; its id."""
    made = await web.post(f"/apps/{session}/calls", {"capability": capability, **more})
    assert made.status == 202, made
    return str(made.json["id"])


async def result(web: Web, call: str) -> Any:
    """The data of a call's result."""
    return (await web.get(f"/calls/{call}?wait=20")).json["result"]["data"]


# --- apps -------------------------------------------------------------------------------------------------------------


async def test_apps_are_connected_listed_and_disconnected(web: Web) -> None:
    async with web.listen() as events:
        made = await web.post("/apps", {"url": "https://user:secret@app.example/x?key=secret"})
        assert made.status == 201 and made.json["url"] == "https://app.example/x?…"
        session = made.json["session"]
        assert {capability["name"] for capability in made.json["capabilities"]} == set(APP)
        assert (await web.get("/apps")).json == {"apps": [made.json], "names": []}
        whole = (await web.get(f"/apps/{session}/capabilities/text.shout")).json
        assert whole["name"] == "text.shout" and "inputSchema" in whole
        missing = await web.get(f"/apps/{session}/capabilities/text.shuot")
        assert (missing.status, missing.json["error"]["alternatives"]) == (404, ["text.shout"])
        assert (await web.ask("DELETE", f"/apps/{session}")).status == 204
        assert (await web.ask("DELETE", f"/apps/{session}")).status == 404
        assert (await web.get("/apps")).json["apps"] == []
        assert [(await events.next())[1] for _ in range(2)] == ["app_connected", "app_disconnected"]


async def test_program_targets_and_too_many_apps_are_rejected(store: ArtifactStore) -> None:
    async with running(store, APP, max_apps=2) as web:
        for url in ("extension:/tmp/x", "file:///etc", "mcp+stdio:rm", "/tmp", "", None, 5, "javascript:1"):
            assert (await web.post("/apps", {"url": url})).status == 400
        for _ in range(2):
            assert (await web.post("/apps", {"url": "http://app.example/"})).status == 201
        assert (await web.post("/apps", {"url": "http://app.example/"})).status == 429


async def test_reuse_returns_session_of_same_full_url(store: ArtifactStore) -> None:
    more: Mapping[str, Any]
    ann, activity, url = "token-of-ann-01234", Activity(), "http://app.example/x?doc=1"
    async with running(store, APP, activity=activity, users={ann: Scope(user="ann")}) as web:

        async def ask(url: str, token: str = web.token, **more: object) -> tuple[int, str | None]:
            answer = await web.with_token(token).post("/apps", {"url": url, "reuse": True, **more})
            return answer.status, answer.json.get("session")

        def made(_: str, **options: Any) -> Session:
            return connect("memory:", transport=MemoryTransport(APP), **options)

        bridge = Apps(store.scoped(Scope(user="ann")), made, activity, limit=1)
        of_bridge = (await bridge.connect(url, {})).key
        status, first = await ask(url)
        assert status == 201 and first != of_bridge
        assert await ask(url) == await ask(url, transport="memory") == (200, first)
        seen = {first}
        for other, more in (
            ("http://app.example/x", {}),
            ("http://app.example/x#doc=2", {}),
            ("http://app.example/x?doc=2", {}),
            (url, {"transport": "websocket"}),
            (url, {"user": "bob"}),
            (url, {"reuse": False}),
        ):
            status, session = await ask(other, **more)
            assert status == 201 and session not in seen, other
            seen.add(session)
        assert await ask(url, ann) == (200, of_bridge)
        assert await ask("http://app.example/x", ann) == (403, None)
        await bridge.aclose()


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.load
async def test_call_runs_end_to_end_into_artifact(web: Web) -> None:
    session = await web.connect()
    async with web.listen() as events:
        made = await web.post(f"/apps/{session}/calls", {"capability": "steps", "params": {}})
        assert made.status == 202 and made.json["status"] == "working" and made.json["session"] == session
        call = made.json["id"]
        assert (await events.next())[1:] == ("call_started", made.json)
        progress = (await events.until("call_progress", id=call))[2]["progress"]
        assert progress == {"value": 1, "total": 2, "text": "step 1"}
        over = (await events.until("call_finished", id=call))[2]
        assert over["status"] == "completed" and over["duration_ms"] > 0 and over["error"] is None
        stored = (await events.until("artifact_stored"))[2]
        assert over["artifacts"] == [stored["id"]] and stored["call"] == call and stored["session"] == session
    shown = (await web.get(f"/calls/{call}")).json
    assert {**shown, "result": None} == {**over, "result": None}
    assert shown["result"]["success"] is True and shown["result"]["artifacts"][0]["filename"] == "hi.txt"
    assert [record["id"] for record in (await web.get(f"/calls?session={session}")).json["calls"]] == [call]
    assert (await web.get("/calls?session=other")).json == {"calls": []}


async def test_failed_calls_are_reported(web: Web) -> None:
    session = await web.connect()
    async with web.listen() as events:
        call = await start(web, session, "text.shout")
        over = (await events.until("call_finished", id=call))[2]
        assert over["status"] == "failed" and over["error"]["code"]
        result = (await web.get(f"/calls/{call}")).json["result"]
        assert result["success"] is False and result["error"]["code"] == over["error"]["code"]
        call = await start(web, session, "forever", timeout=0.1)
        assert (await events.until("call_finished", id=call))[2]["error"]["code"] == "TIMEOUT"
    more: list[dict[str, object]] = [{"params": []}, {"timeout": "x"}, {"timeout": 0}, {"timeout": 1000001},
                                     {"files": [{"param": "a"}]}]  # fmt: skip
    for body in ({}, {"capability": 5}, *({"capability": "steps", **extra} for extra in more)):
        assert (await web.post(f"/apps/{session}/calls", body)).status == 400, body
    unknown = await web.post(f"/apps/{session}/calls", {"capability": "stepps"})
    assert unknown.json["error"]["alternatives"] == ["steps"]
    assert (await web.post("/apps/nobody/calls", {"capability": "steps"})).status == 404


async def test_artifact_is_passed_into_call(web: Web) -> None:
    session = await web.connect()
    file = {"param": "file", "artifact": (await put_artifact(web.store)).id}
    expected = {"size": 10, "name": "digits.txt"}
    assert await result(web, await start(web, session, "size", files=[file])) == expected
    inner = {**file, "param": "list.0.b"}
    params = {"list": [{"a": 1}]}
    assert await result(web, await start(web, session, "size", params=params, files=[file, inner])) == expected
    body = {"capability": "size", "params": params, "files": [{**file, "param": "list.7.b"}]}
    assert (await web.post(f"/apps/{session}/calls", body)).status == 400
    guest = await web.guest(session=session)
    refused = await guest.post(f"/apps/{session}/calls", body)  # it is nobody's, so not the session's
    assert (refused.status, refused.code) == (404, "ARTIFACT_NOT_FOUND")


async def test_disconnecting_app_ends_its_calls(web: Web) -> None:
    session = await web.connect()
    other = await web.connect()
    call = await start(web, session, "forever")
    assert (await web.ask("DELETE", f"/apps/{session}")).status == 204
    assert (await web.get(f"/calls/{call}?wait=20")).json["status"] in ("cancelled", "failed")
    assert [app["session"] for app in (await web.get("/apps")).json["apps"]] == [other]


# --- questions --------------------------------------------------------------------------------------------------------


async def test_question_of_latest_call_is_answered_over_http_once(web: Web) -> None:
    session = await web.connect()
    async with web.listen() as events:
        earlier = await start(web, session, "forever")
        await events.until("call_started", capability="forever")
        call = await start(web, session, "ask")
        question = (await events.until("call_asked"))[2]
        assert question["id"] == call
        assert question["status"] == "input_required" and question["question"]["method"] == "elicitation/input"
        assert question["question"]["params"]["message"] == "Name?"
        for body in ({}, {"success": "yes"}):
            assert (await web.post(f"/calls/{call}/answer", body)).status == 400
        answer = {"success": True, "data": {"value": "Grace"}}
        assert (await web.post(f"/calls/{call}/answer", answer)).status == 204
        assert (await web.post(f"/calls/{call}/answer", answer)).status == 409
        assert await result(web, call) == answer
        assert (await web.post(f"/calls/{call}/answer", answer)).status == 409  # it has ended
        refused = await start(web, session, "ask")
        await events.until("call_asked", id=refused)
        assert (await web.post(f"/calls/{refused}/answer", {"success": False})).status == 204
        assert await result(web, refused) == {"success": False, "cancelled": True}
        for _ in range(2):  # the second time it is over already
            assert (await web.ask("DELETE", f"/calls/{earlier}")).status == 202
            over = (await web.get(f"/calls/{earlier}?wait=20")).json
            assert (over["status"], over["error"]["code"]) == ("cancelled", "CANCELLED")
    assert (await web.ask("DELETE", "/calls/unknown")).status == 404


async def test_call_of_another_program_is_shown_and_stays_its_own(web: Web) -> None:
    """As the bridge of ``abp mcp --gallery`` makes it: not detached, and in no ledger."""
    session = await web.connect()
    app = web.served.apps[session]
    async with web.listen() as events:
        calling = asyncio.ensure_future(app.session.call("forever", call_id="theirs"))
        await events.until("call_started", id="theirs")
        assert (await web.get("/calls/theirs")).json["status"] == "working"
        refused = await web.ask("DELETE", "/calls/theirs")
        assert (refused.status, refused.code) == (409, "NOT_SUPPORTED")
        guest = await web.guest(session="another")
        assert [(await guest.ask(method, "/calls/theirs")).status for method in ("GET", "DELETE")] == [404, 404]
        calling.cancel()
        await events.until("call_finished", id="theirs")
    ended = await web.ask("DELETE", "/calls/theirs")
    assert ended.status == 202 and ended.json["status"] == "cancelled"
    assert (await web.get("/calls?limit=x")).status == 400


# --- restarts --------------------------------------------------------------------------------------------------------


async def test_calls_are_found_by_owner_after_restart(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    users = {"token-of-ann-01234": Scope(user="ann"), "token-of-bob-01234": Scope(user="bob")}
    ann, bob = users
    async with running(store, APP, users=users, ledger=CallLedger(tmp_path / "state")) as web:
        made = await web.post("/apps", {"url": "http://app.example/", "user": "ann"})
        calls = f"/apps/{made.json['session']}/calls"
        done = (await web.with_token(ann).post(calls, {"capability": "steps"})).json
        assert (done["status"], done["detached"]) == ("working", True)
        ended = (await web.with_token(ann).get(f"/calls/{done['id']}?wait=20")).json
        assert ended["status"] == "completed" and ended["result"]["success"] is True
        left = (await web.with_token(ann).post(calls, {"capability": "forever"})).json["id"]
        assert (await web.with_token(ann).get(f"/calls/{left}?wait=x")).status == 400
    killed = CallLedger(tmp_path / "state")  # a server that ends without a word
    lost = CallRecord("lost", "s1", "App", "forever", "memory", Scope(user="ann", session="s1"), 1.0, detached=True)
    await killed.add(lost)
    await killed.aclose()
    async with running(store, APP, users=users, ledger=CallLedger(tmp_path / "state")) as web:
        for visitor in (ann, web.token):  # the operator sees those of all
            records = (await web.with_token(visitor).get("/calls")).json["calls"]
            assert {record["id"]: record["status"] for record in records} == {
                done["id"]: "completed",
                left: "cancelled",
                "lost": "unknown",
            }
        again = (await web.with_token(ann).get(f"/calls/{done['id']}")).json
        assert again["result"] == ended["result"]
        assert (await web.with_token(ann).get(f"/artifacts/{ended['artifacts'][0]}")).body == b"hi"
        assert (await web.with_token(ann).get("/calls/lost")).json["error"]["code"] == "OUTCOME_UNKNOWN"
        assert (await web.with_token(bob).get("/calls")).json == {"calls": []}
        for call in (done["id"], left, "lost", "nothing"):
            for method in ("GET", "DELETE"):
                assert (await web.with_token(bob).ask(method, f"/calls/{call}")).status == 404
        assert (await web.ask("DELETE", "/calls/lost")).json["status"] == "unknown"


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.load
@pytest.mark.requirement("R2-5.6d", "R2-6.3f", "R2-6.3h")
async def test_artifacts_of_other_processes_emit_events(web: Web, tmp_path: Path) -> None:
    other = LocalStore(tmp_path / "out")  # as another process would
    async with web.listen() as events:
        ref = await put_artifact(other)
        assert (await events.next())[1:] == ("artifact_stored", artifact_meta(ref))
        again = await put_artifact(other, filename="another.txt")  # the same content, named anew
        assert (await events.next())[1:] == ("artifact_updated", artifact_meta(again))
        await other.delete(ref.id)
        assert (await events.next())[1:] == ("artifact_removed", {"id": ref.id})


async def test_event_stream_resumes_after_last_event(web: Web) -> None:
    session = await web.connect()
    async with web.listen() as events:
        await put_artifact(web.store, b"1")
        first, _, _ = await events.next()
        await put_artifact(web.store, b"2")
        second = await events.next()
        await web.served.apps.disconnect(web.served.apps[session])
        third = await events.next()
    assert first < second[0] < third[0]
    async with web.listen(first) as again:
        assert [await again.next(), await again.next()] == [second, third]
    for unknown in (first - 10**6, third[0] + 1, "x", "-1", "9" * 30, ""):
        async with web.listen(unknown) as anew:
            number, name, data = await anew.next()
            assert (name, data) == ("reset", {}) and number == third[0]


@pytest.mark.load
async def test_session_receives_only_its_own_events(web: Web) -> None:
    mine, theirs = await web.connect(), await web.connect()
    guest = await web.guest(session=mine)
    async with guest.listen() as events:
        other = await start(web, theirs, "steps")
        await result(web, other)
        await put_artifact(web.store, b"nobody's")
        await put_artifact(web.store.scoped(Scope(session=theirs)), b"theirs")
        call = await start(guest, mine, "text.shout", params={"text": "a"})
        heard = [await events.next() for _ in range(3)]
        assert [(name, data.get("call", data["id"])) for _, name, data in heard] == [
            ("call_started", call), ("call_finished", call), ("artifact_stored", call)]  # fmt: skip
    assert [record["id"] for record in (await guest.get("/calls")).json["calls"]] == [call]
    assert (await guest.get(f"/calls/{other}")).status == 404
    assert (await guest.ask("DELETE", f"/calls/{other}")).status == 404


@pytest.mark.load
async def test_event_stream_ends_when_token_expires(store: ArtifactStore) -> None:
    async with running(store) as web, (await web.guest(session="s", expires=1)).listen() as events:
        with pytest.raises(EOFError):
            await events.next()


async def test_client_behind_bounded_log_is_notified() -> None:
    activity = Activity()
    before = activity.last_id
    for n in range(5000):
        activity.store_changed(StoreChange((), (), ((str(n), Scope()),)))
    with pytest.raises(LogGap):
        await activity.entries_after(before, 1)
    position = activity.last_id - 1500
    seen: list[object] = []
    while len(seen) < 1500:
        entries = await activity.entries_after(position, 1)
        seen += [entry.subject for entry in entries]
        position = entries[-1].id
    assert seen == [{"id": str(n)} for n in range(3500, 5000)]
    assert await activity.entries_after(activity.last_id, 0.01) == []


async def test_progress_flood_does_not_evict_other_log_entries(store: ArtifactStore) -> None:
    async def flood(params: Mapping[str, object], call: Call) -> object:
        for n in range(1000):
            await call.progress(progress=n, total=1000)
        return None

    async with running(store, {"flood": flood}) as web:
        session = await web.connect()
        before = web.served.activity.last_id
        await result(web, await start(web, session, "flood"))
        assert web.served.activity.has_all_entries_after(before) and web.served.activity.last_id - before < 500


async def test_server_exit_leaves_no_tasks(store: ArtifactStore) -> None:
    before = len(asyncio.all_tasks())
    async with running(store, APP, question_timeout=60) as web:
        session = await web.connect()
        for capability in ("forever", "ask"):
            await start(web, session, capability)
        listening = await web.listen().__aenter__()  # and goes on when the server ends
        assert len(asyncio.all_tasks()) > before
    await eventually(lambda: len(asyncio.all_tasks()) <= before)
    await listening.__aexit__()


async def test_metrics(web: Web) -> None:
    session = await web.connect()
    ref = await put_artifact(web.store)
    await web.get(f"/artifacts/{ref.id}")
    await web.get("/nowhere/at/all")
    async with web.listen():
        text = (await web.get("/metrics")).body.decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["abp_content_bytes_total"]) == 10
    assert float(lines['abp_requests_total{method="GET",route="/artifacts/{id}",status="200"}']) == 1
    assert float(lines['abp_requests_total{method="GET",route="none",status="404"}']) == 1
    assert float(lines["abp_listeners"]) == float(lines["abp_apps"]) == 1
    assert float(lines["process_resident_memory_bytes"]) > 1e6 and "abp_browsers" in lines
    for name in {re.sub("_(bucket|sum|count)$", "", line.partition("{")[0]) for line in lines}:
        assert text.count(f"# TYPE {name} ") == text.count(f"# HELP {name} ") == 1
    assert session in web.served.apps
