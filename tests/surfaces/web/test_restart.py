"""Calls over HTTP that outlive the server."""

from pathlib import Path

from tests.support.apps import answering, b64, hang
from tests.support.web_client import running
from transports.artifacts import LocalStore, Scope
from transports.surfaces.shared._activity import CallRecord
from transports.surfaces.shared._detached import CallLedger

FILE = {"content": b64(b"hi"), "mimeType": "text/plain", "encoding": "base64", "filename": "hi.txt"}
APP = {"file.make": answering({"file": FILE}), "job.hang": hang}


async def test_calls_are_found_after_a_restart_by_who_they_belong_to(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    users = {"token-of-ann-01234": Scope(user="ann"), "token-of-bob-01234": Scope(user="bob")}
    ann, bob = users
    async with running(store, APP, users=users, ledger=CallLedger(tmp_path / "state")) as web:
        made = await web.post("/apps", {"url": "http://app.example/", "user": "ann"})
        calls = f"/apps/{made.json['session']}/calls"
        done = (await web.with_token(ann).post(calls, {"capability": "file.make"})).json
        assert (done["status"], done["detached"]) == ("working", True)
        ended = (await web.with_token(ann).get(f"/calls/{done['id']}?wait=20")).json
        assert ended["status"] == "completed" and ended["result"]["success"] is True
        left = (await web.with_token(ann).post(calls, {"capability": "job.hang"})).json["id"]
        assert (await web.with_token(ann).get(f"/calls/{left}?wait=x")).status == 400
    killed = CallLedger(tmp_path / "state")  # a server that ends without a word
    lost = CallRecord("lost", "s1", "App", "job.hang", "memory", Scope(user="ann", session="s1"), 1.0, detached=True)
    await killed.add(lost)
    await killed.aclose()
    async with running(store, APP, users=users, ledger=CallLedger(tmp_path / "state")) as web:
        records = (await web.with_token(ann).get("/calls")).json["calls"]
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
