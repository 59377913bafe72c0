"""``abp batch run --engine ray`` on a real cluster of one machine: an actor is killed while it has jobs."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path

import psutil
import pytest

from tests.batch.kills.apps import PageApp
from tests.support.eventually import eventually
from tests.support.needs import missing
from tests.support.processes import processes

PATIENCE = 120.0


class Holding(PageApp):
    """The reference app, in which the first run of some jobs waits until the test lets it go."""

    def __init__(self, held: set[int]) -> None:
        super().__init__()
        self._held = held
        self.go_on = asyncio.Event()

    async def counted(self, n: int) -> None:
        await super().counted(n)
        if n in self._held and self.runs[n] == 1:
            await self.go_on.wait()


@pytest.mark.browser
@pytest.mark.slow
async def test_killed_actor_ends_its_browser_and_run_continues(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        missing("Ray", "pip install ray")
    app, home = Holding({0, 1}), Path.home() / ".ray"
    before = home.exists()
    lines = [{"id": str(n), **app.call(n), "idempotent": n == 0} for n in range(10)]
    lines.append({"id": "bad", "capability": "no.such", "params": {"title": "99"}})
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with app.served() as url:
        command = ("-m", "transports.surfaces.cli", "batch", "run", str(tmp_path / "jobs.jsonl"), "--json")
        options = ("--out", str(tmp_path / "run"), "--target", url, "--engine", "ray")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command, *options, "--browsers", "1", "--concurrency", "2"),
            stdout=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        try:
            await eventually(
                lambda: {0, 1} <= app.runs.keys() or process.returncode is not None, within=PATIENCE, pause=0.1
            )
            assert process.returncode is None
            main = psutil.Process(process.pid)
            (actor,) = [one for one in processes(below=main) if "ray::RayWorker" in "".join(one.cmdline())]
            below = processes(below=actor)
            assert processes("browser", actor) and processes("driver", actor)
            actor.kill()
            _, alive = await asyncio.to_thread(psutil.wait_procs, below, PATIENCE)
            assert not alive
            app.go_on.set()
            cluster = processes(below=main)
            assert all("RAY_AUTH_TOKEN" in one.environ() for one in cluster if one.name() == "raylet")
            out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 3
    *_, report = [json.loads(line) for line in out.splitlines()]
    assert report["event"] == "report" and report["browsers"]["recycled"] == {"ended": 1}
    manifest = [json.loads(line) for line in (tmp_path / "run" / "manifest.jsonl").read_text().splitlines()]
    states = {line["id"]: line["status"] for line in manifest}
    assert states == {**{str(n): "succeeded" for n in range(10)}, "1": "unknown", "bad": "failed"}
    assert {n: app.runs[n] for n in range(10)} == {**dict.fromkeys(range(10), 1), 0: 2}
    assert all(Path(line["uri"] and line["artifacts"][0]["path"]).is_file() for line in manifest[2:10])
    _, alive = await asyncio.to_thread(psutil.wait_procs, cluster, 30)
    assert not alive
    assert home.exists() == before
    assert not list(Path("/tmp").glob(f"abp-run-{process.pid}-*"))
