"""For information: latency per size of every way that content can take, to choose the thresholds between them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from tests.benchmarks.measure import MB, Way, in_turns
from tests.benchmarks.pages import KEPT, LENGTH, Bench, keep
from tests.benchmarks.report import Row, Table
from transports import BinaryData, Message, PlaywrightTransport
from transports.protocol.binary import Handle
from webapp_fixture import generate

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["inputs", "ladder"]

_KB = 1 << 10
_RATION = 0.12  # seconds between downloads: the browser drops what is more than ten a second
_SIZES = {
    "1 KB": _KB,
    "64 KB": 64 * _KB,
    "256 KB": 256 * _KB,
    "512 KB": 512 * _KB,
    "1 MB": MB,
    "2 MB": 2 * MB,
    "4 MB": 4 * MB,
    "16 MB": 16 * MB,
}
_RUNGS = ("inline", "stream", "download", "slices")
_INPUTS = {
    "1 KB": _KB,
    "16 KB": 16 * _KB,
    "64 KB": 64 * _KB,
    "128 KB": 128 * _KB,
    "256 KB": 256 * _KB,
    "1 MB": MB,
    "4 MB": 4 * MB,
}


def _of(bench: Bench, sizes: Mapping[str, int]) -> dict[str, int]:
    """Every size, or with ``quick`` every third."""
    return dict(list(sizes.items())[:: 3 if bench.quick else 1])


def _rounds(bench: Bench, size: int) -> int:
    return 2 if bench.quick or size > MB else 3


async def ladder(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Page → file by each rung: the call and the bytes in a file, without hashing and storing."""
    cells: dict[str, dict[str, float]] = {rung: {} for rung in _RUNGS}
    async with contextlib.AsyncExitStack() as stack:
        ways: dict[str, tuple[PlaywrightTransport, Page]] = {}
        for rung in _RUNGS:
            with patch("transports.playwright._agent.INLINE_BYTES", 64 * MB if rung == "inline" else 0):
                _, transport, page = await stack.enter_async_context(bench.session())
            ways[rung] = transport, page
            if rung != "inline":
                ladder = transport._top_reach.ladder
                only = {rung: getattr(ladder, f"_save_by_{rung}")}
                stack.enter_context(patch.object(ladder, "_rungs", return_value=only))
        for name, size in _of(bench, _SIZES).items():
            for _, page in ways.values():
                await keep(page, bytes=size)
            turns = {rung: _taking(bench, rung, transport, size) for rung, (transport, _) in ways.items()}
            times = await in_turns(turns, rounds=_rounds(bench, size), warm=False)
            for rung, taken in times.items():
                cells[rung][name] = 1000 * median(taken)
    return [], [
        Table("Page → file: median latency of the call and the bytes in a file", tuple(_of(bench, _SIZES)), cells)
    ]


def _taking(bench: Bench, rung: str, transport: PlaywrightTransport, size: int) -> Way:
    target = bench.folder / f"{rung}.bin"
    options = {"timeout": 60_000, "progressToken": rung, "callId": rung}
    payload = {"capability": KEPT, "params": {}, "options": options}

    async def turn() -> Sequence[float]:
        if rung == "download":
            await asyncio.sleep(_RATION)
        started = time.perf_counter()
        reply = await transport.request(Message("capabilities/call", payload, id=rung), timeout=60)
        binary = _content(reply)
        if isinstance(binary.content, Handle):
            await transport.save(binary.content, target, timeout=60)
        else:
            assert isinstance(binary.content, bytes)
            await asyncio.to_thread(target.write_bytes, binary.content)
        taken = time.perf_counter() - started
        assert target.stat().st_size == size
        target.unlink()
        if isinstance(binary.content, Handle):
            await transport.release(binary.content)
        return [taken]

    return turn


def _content(reply: Message) -> BinaryData:
    payload = reply.payload
    assert isinstance(payload, dict)
    binary = payload["data"]["file"]["content"]
    assert isinstance(binary, BinaryData)
    return binary


async def inputs(bench: Bench) -> tuple[list[Row], list[Table]]:
    """File → page: inside the call as base64, and as a file that the page opens."""
    cells: dict[str, dict[str, float]] = {"base64 in the call": {}, "file input": {}}
    path = bench.folder / "input.bin"
    async with bench.session() as (app, _, page):
        await keep(page)

        def sending(limit: int) -> Way:
            async def turn() -> Sequence[float]:
                with patch("transports.playwright._content._MAX_INLINE", limit):
                    started = time.perf_counter()
                    await app.call(LENGTH, {"file": path})
                    return [time.perf_counter() - started]

            return turn

        for name, size in _of(bench, _INPUTS).items():
            path.write_bytes(b"".join(generate(size)))
            turns = {"base64 in the call": sending(64 * MB), "file input": sending(0)}
            for way, taken in (await in_turns(turns, rounds=2 * _rounds(bench, size), warm=False)).items():
                cells[way][name] = 1000 * median(taken)
    path.unlink()
    return [], [Table("File → page: median latency of a call that is given a file", tuple(_of(bench, _INPUTS)), cells)]
