"""``abp bench``: how many calls are made, what is counted, what is printed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Terminal
from transports import CapabilityError, MemoryTransport, connect
from transports.artifacts import MemoryStore
from transports.memory import Call
from transports.surfaces.cli._bench import Measurement, percentile
from webapp_fixture import Fixture

ROWS = ("-p", 'rows=[{"product": "tea", "sold": 12}]')


def counting(answers: Mapping[int, Exception] | None = None) -> tuple[MemoryTransport, list[int]]:
    """An app that answers 1,000 bytes, or an error to the calls of these numbers; and how many run at each call."""
    running: list[int] = []
    under_way = 0

    async def make(params: Mapping[str, object], call: Call) -> object:
        nonlocal under_way
        under_way += 1
        running.append(under_way)
        number = len(running)
        await asyncio.sleep(0)
        under_way -= 1
        if number in (answers or {}):
            raise (answers or {})[number]
        return {"file": b"x" * 1000}

    return MemoryTransport({"make": make}), running


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temp folder of this test's own, to see what is left in it."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_figures_are_one_document(abp: CommandLine, workbench: Fixture, tmp_path: Path, scratch: Path) -> None:
    args = ("bench", workbench.ws_url, "data.csv", *ROWS, "--calls", 7, "--concurrency", 3)
    ran = abp(*args, "--json")
    assert ran.status == 0 and ran.err == "" and list(scratch.iterdir()) == [] and not (tmp_path / "out").exists()
    document: dict[str, Any] = ran.document
    latency = document.pop("latency_ms")
    assert list(latency) == ["min", "median", "p95", "p99", "max"]
    assert 0 < latency["min"] <= latency["median"] <= latency["p95"] <= latency["p99"] == latency["max"]
    seconds, size = document.pop("seconds"), document.pop("bytes")
    assert size == 7 * 22 and latency["max"] / 1000 <= seconds + 1e-6
    assert document.pop("calls_per_second") == pytest.approx(7 / seconds, rel=0.01)
    assert document.pop("bytes_per_second") == pytest.approx(size / seconds, rel=0.01)
    expected = {"success": True, "capability": "data.csv", "transport": "websocket", "planned": 7, "calls": 7}
    assert document == expected | {"failed": 0, "concurrency": 3, "rungs": {}, "errors": []}


def test_the_figures_are_tables(abp: CommandLine, workbench: Fixture) -> None:
    ran = abp("bench", workbench.ws_url, "data.csv", *ROWS, "--calls", 9, "--store", "memory:")
    lines = ran.out.splitlines()
    assert ran.status == 0 and ran.err == "" and lines[0] == "data.csv over websocket"
    assert lines[1].split() == ["calls", "failed", "at", "once", "calls/s", "content/s", "rungs"]
    assert lines[2].split()[:3] == ["9", "0", "1"] and lines[2].endswith("none")
    assert lines[3].split() == ["min", "ms", "median", "ms", "p95", "ms", "p99", "ms", "max", "ms"]
    assert len(lines) == 5


def test_calls_that_fail_are_counted_by_code(abp: CommandLine, workbench: Fixture) -> None:
    ran = abp("bench", workbench.ws_url, "job.wiat", "--calls", 3, "--json")
    (error,) = ran.document["errors"]
    assert ran.status == 1 and ran.document["success"] is False and ran.document["calls"] == ran.document["failed"] == 3
    assert error["code"] == "UNKNOWN_CAPABILITY" and error["count"] == 3 and "job.wait" in error["message"]
    assert ran.document["latency_ms"] is None and ran.document["calls_per_second"] == 0
    assert "abp: 3 of 3 calls failed" in ran.err
    ran = abp("bench", workbench.ws_url, "job.wiat", "--calls", 2)
    assert ran.status == 1 and "2 × UNKNOWN_CAPABILITY: " in ran.out


def test_what_cannot_be_measured_is_refused(abp: CommandLine, workbench: Fixture) -> None:
    for args, problem in (
        ((workbench.ws_url, "job.run", "-p", "steps=0"), "steps"),
        (("ws://127.0.0.1:9/", "x", "--calls", 0), "--calls"),
    ):
        ran = abp("bench", *args)
        assert ran.status == 2 and problem in ran.err and ran.out == "", ran


def test_ctrl_c_prints_what_was_measured(
    abp: CommandLine, workbench: Fixture, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    run = Measurement.run

    async def interrupted(self: Measurement, *args: Any, **options: Any) -> None:
        def stop(count: int) -> None:
            if count == 4:
                os.kill(os.getpid(), signal.SIGINT)

        await run(self, *args, **{**options, "on_call": stop})

    monkeypatch.setattr(Measurement, "run", interrupted)
    ran = abp("bench", workbench.ws_url, "data.csv", *ROWS, "--calls", 100_000, "--json")
    assert ran.status == 130 and "interrupted; " in ran.err and "were not made" in ran.err
    assert ran.document["success"] is False and 4 <= ran.document["calls"] < ran.document["planned"] == 100_000
    assert ran.document["latency_ms"]["median"] > 0
    assert list(scratch.iterdir()) == []


def test_a_terminal_shows_how_many_calls_were_made(abp: CommandLine, workbench: Fixture) -> None:
    def watch(terminal: Terminal) -> None:
        terminal.wait_for("data.csv 2/2")

    args = ("bench", workbench.ws_url, "data.csv", *ROWS, "--calls", 2, "--json")
    assert abp.at_terminal(*args, script=watch, term="xterm").document["calls"] == 2


async def test_a_warm_up_is_not_counted_and_failures_do_not_end_the_others() -> None:
    failing = {1: CapabilityError("cold", code="COLD"), 3: CapabilityError("no", code="NO"), 5: ValueError("odd")}
    transport, running = counting(failing)
    shown: list[int] = []
    async with MemoryStore() as store, connect("memory:", transport=transport, store=store) as app:
        measured = Measurement("make", 6, 1)
        await measured.run(app, {}, on_call=shown.append)
        assert await store.list() == []
    assert len(running) == 7 and shown == [1, 2, 3, 4, 5, 6] and set(running) == {1}
    assert measured.calls == 6 and len(measured.latencies) == 4 and measured.size == 4000
    assert measured.failures["NO"].count == 1 and measured.failures["NO"].message == "make: no"
    assert measured.failed == 2 and "COLD" not in measured.failures and not measured.session_ended


async def test_as_many_calls_run_at_once_as_asked_for() -> None:
    transport, running = counting()
    async with MemoryStore() as store, connect("memory:", transport=transport, store=store) as app:
        measured = Measurement("make", 20, 4)
        await measured.run(app, {})
    assert len(running) == 21 and max(running) == 4 and measured.calls == 20
    assert measured.seconds <= sum(measured.latencies)


async def test_calls_end_with_their_session() -> None:
    transport, _ = counting()
    async with MemoryStore() as store:
        app = await connect("memory:", transport=transport, store=store)
        measured = Measurement("make", 50, 2)
        ended: asyncio.Queue[int] = asyncio.Queue()
        work = asyncio.ensure_future(measured.run(app, {}, on_call=ended.put_nowait))
        while await ended.get() < 3:
            pass
        await app.aclose()
        await work
    assert measured.session_ended and 1 <= measured.failed <= 2 and set(measured.failures) == {"DISCONNECTED"}
    assert 3 <= measured.calls < 50


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, at) for at in (0, 50, 95, 99, 100)] == [1, 50, 95, 99, 100]
    assert [percentile([7.0], at) for at in (0, 50, 100)] == [7, 7, 7]
    assert percentile([1.0, 2.0, 3.0], 50) == 2
