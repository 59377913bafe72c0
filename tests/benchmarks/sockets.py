"""WebSocket rows: a large inline result, small calls, and what a large answer does to others on the same loop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from websockets.asyncio.client import connect as bare_connect

from tests.benchmarks.measure import MB, at_once, in_turns, timed
from tests.benchmarks.pages import Bench, delete_whole
from tests.benchmarks.report import Row
from transports import Result, Session, WebSocketTransport, connect

__all__ = ["large_message", "pauses", "small_messages"]

_LIMIT = 200_000_000


@contextlib.asynccontextmanager
async def _server(megabytes: int) -> AsyncIterator[str]:
    """An app in a process of its own, so that its work is not ours."""
    command = [sys.executable, "-m", "tests.benchmarks.socket_app", str(megabytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield (await asyncio.to_thread(process.stdout.readline)).strip()
        finally:
            process.kill()


def _request(capability: str, identity: str) -> str:
    payload = {"capability": capability, "params": {}, "options": {"callId": identity}}
    return json.dumps({"type": "capabilities/call", "id": identity, "timestamp": 0, "payload": payload})


def _session(url: str, store: str | Path) -> Session:
    return connect(url, transport=WebSocketTransport(url, max_bytes=_LIMIT), store=store, timeout=60)


async def large_message(bench: Bench) -> list[Row]:
    """A large inline result, socket to verified file, against what a program without this kit does."""
    megabytes = 16 if bench.quick else 64
    target = bench.folder / "baseline.bin"
    async with _server(megabytes) as url, bare_connect(url, max_size=None, compression=None) as bare:

        async def received() -> None:
            await bare.send(_request("large", "1"))
            await bare.recv(decode=False)

        async def documented() -> None:
            await bare.send(_request("large", "1"))
            answer = json.loads(await bare.recv())
            target.write_bytes(base64.b64decode(answer["payload"]["data"]["file"]["content"]))

        async with _session(url, bench.folder / "ws") as app:

            async def whole(result: Result) -> None:
                assert result.artifacts["file"].size_bytes == megabytes * MB
                await delete_whole(app, result, result.data["sha256"])  # type: ignore[index, call-overload, arg-type]

            ways = {
                "received": timed(received),
                "documented": timed(documented),
                "kit": timed(partial(app.call, "large"), then=whole),
            }
            times = await in_turns(ways, rounds=2, warm=False, pause=0.1)
    best = {name: min(values) for name, values in times.items()}
    assert hashlib.sha256(target.read_bytes()).hexdigest()
    speed = {name: megabytes / seconds for name, seconds in best.items()}
    medians = statistics.median(times["documented"]) / statistics.median(times["kit"])
    limit = statistics.median(times["received"]) / statistics.median(times["kit"])
    why = "both wait for the same bytes; the kit also hashes, syncs and names the file, which the baseline does not"
    return [
        Row(
            f"WebSocket, {megabytes} MB inline → verified file",
            "json.loads + base64.b64decode + write, on the same library",
            best["documented"] / best["kit"],
            f"{speed['kit']:.0f} MB/s against {speed['documented']:.0f} MB/s (medians: {medians:.2f}×)",
            at_least=2,
            reason=why,
        ),
        Row(
            f"WebSocket, {megabytes} MB inline → verified file, beside its limit",
            "the same bytes received by the bare library, and dropped",
            best["received"] / best["kit"],
            f"{speed['kit']:.0f} MB/s against {speed['received']:.0f} MB/s (medians: {limit:.2f}×)",
            at_least=0.85,
            want=1,
            reason=why,
        ),
    ]


async def small_messages(bench: Bench) -> list[Row]:
    """Small calls against a bare echo of the same text."""
    count = 300 if bench.quick else 2000
    used: dict[str, list[float]] = {"echo": [], "kit": [], "echoes": [], "calls": []}  # processor time of each call
    async with (
        _server(1) as url,
        bare_connect(url, max_size=None, compression=None) as bare,
        _session(url, "none:") as app,
    ):

        async def echo() -> None:
            await bare.send(_request("small", "1"))
            await bare.recv()

        async def echoes() -> None:
            for n in range(100):
                await bare.send(_request("small", str(n)))
            for _ in range(100):
                await bare.recv()

        async def calls() -> None:
            await asyncio.gather(*(app.call("small") for _ in range(100)))

        serial = {
            "echo": timed(echo, times=count // 10, processor=used["echo"]),
            "kit": timed(partial(app.call, "small"), times=count // 10, processor=used["kit"]),
        }
        times = await in_turns(serial, rounds=10)
        together = {
            "echo": at_once(echoes, 100, processor=used["echoes"]),
            "kit": at_once(calls, 100, processor=used["calls"]),
        }
        many = await in_turns(together, rounds=max(count // 100, 5))
    rates = {name: 1 / statistics.median(values) for name, values in many.items()}
    middle = {name: statistics.median(values) for name, values in times.items()}
    processor = {name: statistics.median(values) * 1e6 for name, values in used.items()}
    why = "a call is more than an echo: it has an id and a deadline, its answer is parsed and searched for content"
    return [
        Row(
            "WebSocket, small calls one after the other",
            "bare websockets echo of the same text",
            middle["echo"] / middle["kit"],
            f"median {middle['kit'] * 1e3:.2f} ms against {middle['echo'] * 1e3:.2f} ms; "
            f"processor {processor['kit']:.0f} µs against {processor['echo']:.0f} µs a call",
            at_least=0.8,
            reason=why,
        ),
        Row(
            "WebSocket, 100 small calls at once",
            "bare websockets: 100 texts sent, then 100 received",
            rates["kit"] / rates["echo"],
            f"{rates['kit']:,.0f} a second against {rates['echo']:,.0f}; "
            f"processor {processor['calls']:.0f} µs against {processor['echoes']:.0f} µs a call",
            at_least=0.6,
            reason=why,
        ),
    ]


async def pauses(bench: Bench) -> list[Row]:
    """A stream of small calls at 1 kHz while a large answer arrives on another connection of the same loop."""
    megabytes = 16 if bench.quick else 64
    delays: list[float] = []
    stop = asyncio.Event()
    async with (
        _server(megabytes) as url,
        _server(1) as other,  # a process of its own: what keeps the large one's server busy is not our pause
        _session(url, bench.folder / "ws") as large,
        _session(other, "none:") as small,
    ):

        async def one(due: float) -> None:
            await small.call("small")
            delays.append(asyncio.get_running_loop().time() - due)

        async def stream() -> None:
            loop, calls = asyncio.get_running_loop(), set()
            due = loop.time()
            while not stop.is_set():
                due += 0.001
                await asyncio.sleep(max(due - loop.time(), 0))
                task = asyncio.ensure_future(one(due))
                calls.add(task)
                task.add_done_callback(calls.discard)
            await asyncio.gather(*calls)

        streaming = asyncio.ensure_future(stream())
        await asyncio.sleep(0.5)
        alone = sorted(delays)
        delays.clear()
        for _ in range(3):
            await large.call("large")
        stop.set()
        await streaming
    beside = sorted(delays)

    def percentile(values: list[float]) -> float:
        return values[int(len(values) * 0.99)] * 1e3

    row = Row(
        f"p99 of small calls at 1 kHz while {megabytes} MB answers arrive",
        "the same stream alone",
        percentile(beside),
        f"alone {percentile(alone):.1f} ms; worst {beside[-1] * 1e3:.0f} ms of {len(beside)} calls; 20 ms is the mark",
        unit="ms",
        at_least=20,
        reason="what takes part in the answer's decoding and writing keeps the interpreter's lock for milliseconds",
    )
    return [row]
