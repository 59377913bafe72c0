"""Batch runs over HTTP: how they stand, their jobs and files, for the operator alone."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.eventually import eventually
from tests.support.web_client import Web, running
from transports import UsageError
from transports.artifacts import ArtifactRef, LocalStore, MemoryStore, Scope
from transports.batch import Job, Ledger, Outcome, State, open_ledger
from transports.batch.ledger._schema import Settlement
from transports.surfaces.web._access import Limits
from transports.surfaces.web._runs import ServedRuns

CANARY = "<script>alert(1)</script>\u202e"
SECRET = "hunter2-hunter2"


async def make_run(folder: Path, *, ref: ArtifactRef | None = None, jobs: int = 4) -> Ledger:
    """A run of four jobs: one succeeded, one failed, one is leased, one is queued. The caller closes its ledger."""
    ledger = await open_ledger(folder).__aenter__()
    params = {"title": CANARY, "password": SECRET}
    added = [Job("do" + CANARY, {"n": n, **params}, "http://user:pw@a.test/?q=1", f"{CANARY}{n}") for n in range(jobs)]
    await ledger.add(lambda: [[*added, replace(added[0], id=f"copy{CANARY}")]], "one")
    first, second, _ = await ledger.lease(3, 600)
    files = (ref,) if ref else ()
    failed = Outcome(second.job, State.FAILED, error_code=CANARY, error=f"{CANARY} broke", milliseconds=7)
    succeeded = Outcome(first.job, State.SUCCEEDED, artifacts=files, milliseconds=5)
    await ledger.settle([Settlement(first.key, succeeded), Settlement(second.key, failed)])
    return ledger


async def run_id(web: Web) -> str:
    (run,) = (await web.get("/runs")).json["runs"]
    return str(run["id"])


@pytest.mark.load
async def test_a_run_is_shown_with_its_jobs_and_their_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "june" / "files")
    ref = await store.put_bytes(b"<b>kept</b>", filename="made.html", mime_type="text/html")
    report = tmp_path / "june" / "report.json"
    report.write_text(json.dumps(
        {"milliseconds": {"p50": 5.0, "p99": "x"}, "browsers": {"calls": 9, "recycled": {"memory": 2}}}
    ))  # fmt: skip
    os.utime(report, (0, 0))
    (tmp_path / "no-run").mkdir()
    ledger = await make_run(tmp_path / "june", ref=ref)
    async with running(MemoryStore(), runs=[str(tmp_path)]) as web:
        listed = (await web.get("/runs")).json
        assert listed["served"] is True and [run["name"] for run in listed["runs"]] == ["june"]
        path = f"/runs/{await run_id(web)}"
        run = (await web.get(path)).json
        assert {s: n for s, n in run["states"].items() if n} == {"queued": 1, "leased": 1, "succeeded": 1, "failed": 1}
        assert run["codes"] == [{"code": CANARY, "name": CANARY.replace("\u202e", "�"), "jobs": 1}]
        assert (run["throughput"]["succeeded"], run["throughput"]["others"]) == ([1], [1])
        assert run["report"] == {
            "milliseconds": {"p50": 5.0},
            "recycled": {"memory": 2},
            "written": "1970-01-01T00:00:00.000Z",
        }

        ended = (await web.get(f"{path}/jobs")).json
        assert [job["state"] for job in ended["jobs"]] == ["failed", "succeeded"] and ended["next"] is None
        counts = {"state=queued": 1, "state=leased": 1, "q=%3Cscript": 2, "q=none": 0, "code=none": 0}
        for query, count in counts.items():
            assert len((await web.get(f"{path}/jobs?{query}")).json["jobs"]) == count, query
        (shared,) = (await web.get(f"{path}/jobs?q={quote(f'copy{CANARY}')}")).json["jobs"]
        assert shared == {**ended["jobs"][1], "copy": f"copy{CANARY}".replace("\u202e", "�")}
        page = (await web.get(f"{path}/jobs?limit=1")).json
        assert [job["state"] for job in (await web.get(f"{path}/jobs?limit=1&after={page['next']}")).json["jobs"]] == [
            "succeeded"
        ]
        whole = (await web.get(f"{path}/jobs/{ended['jobs'][1]['key']}")).json
        assert json.loads(whole["params"])["password"] == "<redacted>" and SECRET not in json.dumps(whole)
        assert whole["target"] == "http://a.test/?…" and "\u202e" not in json.dumps(whole, ensure_ascii=False)
        assert whole["copies"] == [shared["copy"]]
        (file,) = whole["files"]
        assert (file["id"], file["filename"], file["size_bytes"]) == (ref.id, "made.html", 11)
        assert (await web.get(f"/artifacts/{ref.id}")).body == b"<b>kept</b>"
        assert (await web.get(f"/artifacts/{ref.id}/meta")).json["sha256"] == ref.sha256
        assert (await web.post(f"/artifacts/{ref.id}/verify")).json["ok"] is True
        link = (await web.post(f"/artifacts/{ref.id}/link")).json["url"]
        assert (await web.get(link, token=False)).body == b"<b>kept</b>"
        refused = await web.ask("DELETE", f"/artifacts/{ref.id}")
        assert refused.status == 403 and "belongs to a batch run" in refused.json["error"]["message"]
        assert (await web.get(f"/artifacts/{ref.id}/meta")).json["run"] == await run_id(web)
        assert (await web.get("/artifacts")).json["total"] == 0

        async with web.listen() as events:
            leased = (await ledger.lease(1, 600))[0]
            await ledger.settle([Settlement(leased.key, Outcome(leased.job, State.SUCCEEDED))])
            event = (await events.until("run_changed"))[2]
            assert event["id"] == await run_id(web) and set(event) == {"id", "states", "cancelled"}
    await ledger.aclose()


@pytest.mark.load
async def test_runs_are_read_only_and_operator_only(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "run" / "files")
    ref = await store.put_bytes(b"x", filename="x.txt", mime_type="text/plain")
    async with await make_run(tmp_path / "run", ref=ref) as ledger:
        users = {"a-token-of-a-user": Scope(user="u")}
        async with running(MemoryStore(), runs=[str(tmp_path / "run")], users=users) as web:
            user, path = web.with_token("a-token-of-a-user"), f"/runs/{await run_id(web)}"
            (key,) = [job["key"] for job in (await web.get(f"{path}/jobs?state=failed")).json["jobs"]]
            closed = [path, f"{path}/jobs", f"{path}/jobs/{key}"]
            for address in closed:
                assert (await web.get(address)).status == 200
                assert ((await user.get(address)).status, (await web.get(address, token=False)).status) == (403, 401)
                assert (await web.post(address)).status == 405
            assert (await web.get("/runs", token=False)).status == 401
            assert (await user.get("/runs")).json == {"served": False, "runs": []}
            assert (await user.get(f"/artifacts/{ref.id}")).status == 404
            async with user.listen() as events:
                await ledger.cancel()
                async with web.listen() as operator:
                    await web.get(path)
                    assert (await operator.until("run_changed", cancelled=True))[2]["states"]["cancelled"] == 1
                await user.served.apps.connect("memory:", {})  # the operator's, too
                web.served.activity._log_entry("mark", {}, Scope(user="u"))
                assert (await events.next())[1] == "mark"
            for wrong in ("state=odd", "limit=0", "limit=201", "limit=x", "limit=0000000099999", "after=x"):
                assert (await web.get(f"{path}/jobs?{wrong}")).status == 400, wrong
            for gone in ("/runs/none", "/runs/..%2Frun", f"{path}/jobs/none"):
                assert (await web.get(gone)).status == 404, gone


async def test_unreadable_run_is_reported_without_affecting_others(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "ledger.sqlite").write_bytes(b"no database" * 500)
    async with running(MemoryStore(), runs=[str(tmp_path)]) as web:
        answer = await web.get(f"/runs/{await run_id(web)}")
        assert (answer.status, answer.code) == (503, "LEDGER_ERROR")
        await (await make_run(tmp_path / "later")).aclose()  # a run that begins while the server runs
        runs = (await web.get("/runs")).json["runs"]
        assert [run["name"] for run in runs] == ["later", "damaged"]
        assert (await web.get(f"/runs/{runs[0]['id']}")).status == 200
    async with running(MemoryStore()) as web:
        assert (await web.get("/runs")).json == {"served": False, "runs": []}
    for wrong in ("no-such-folder", "mysql://host/db"):
        with pytest.raises(UsageError, match=r"no-such-folder|not a ledger"):
            async with running(MemoryStore(), runs=[wrong]):
                pass


async def test_only_requested_runs_are_opened(tmp_path: Path) -> None:
    limits = Limits(run_idle=0.2, run_interval=0.05)
    for n in range(2):
        await (await make_run(tmp_path / str(n))).aclose()
    async with running(MemoryStore(), runs=[str(tmp_path)], limits=limits) as web:
        runs = [run["id"] for run in (await web.get("/runs")).json["runs"]]
        open_before = database_threads()
        for _ in range(2):
            assert (await web.get(f"/runs/{runs[0]}")).json["states"]["failed"] == 1
            assert len(database_threads() - open_before) == 1
            await eventually(lambda: database_threads() <= open_before)  # nobody asks any more


async def test_stores_of_removed_runs_are_closed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        await (await make_run(tmp_path / name)).aclose()
    runs = ServedRuns([str(tmp_path)], lambda *_: None)
    assert await runs.artifact("none") is None and len(runs._stores) == 2
    shutil.rmtree(tmp_path / "one")
    assert await runs.artifact("none") is None and len(runs._stores) == 1
    await runs.aclose()


def database_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("abp-database")}
