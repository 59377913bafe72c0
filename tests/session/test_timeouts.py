"""Timeouts as callers give them: their range is one, wherever they come in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from transports import Browser, MemoryTransport, PlaywrightTransport, UsageError, WebSocketTransport, connect
from transports.batch import Job, Pool, RunOptions, State
from transports.batch._jobs import parse_job
from transports.session._call import timeout_seconds
from transports.session._named_apps import app_entries
from transports.session._settings import Settings, read_config
from transports.testing import Call

#: Values that are no timeout; the fourth has more digits than Python writes.
WRONG = [1_000_000.001, 1e308, 10**400, 10**5000, math.nan, -math.inf, -1, 0, True, "3"]
NAMES = ["above", "1e308", "400 digits", "5000 digits", "nan", "-inf", "negative", "zero", "bool", "text"]


@pytest.mark.parametrize("value", [1_000_000, 0.001, 3])
def test_timeout_over_a_million_seconds_is_rejected(value: float) -> None:
    assert timeout_seconds(value, 5) == value
    assert timeout_seconds(math.inf, 5) == math.inf  # no limit at all
    assert timeout_seconds(None, 5000) == 5


PLACES: Mapping[str, Callable[[Any], object]] = {
    "the range": lambda value: timeout_seconds(value, 5),
    "a session": lambda value: connect("memory:", transport=MemoryTransport({}), timeout=value),
    "a pool": lambda value: Pool(timeout=value),
    "a page": lambda value: PlaywrightTransport("http://127.0.0.1:9/", timeout=value),
    "a WebSocket": lambda value: WebSocketTransport("ws://127.0.0.1:9/", timeout=value),
    "a browser": lambda value: Browser(timeout=value),
    "deadline": lambda value: RunOptions(deadline=value),
    "lease_seconds": lambda value: RunOptions(lease_seconds=value),
}


@pytest.mark.parametrize("value", WRONG, ids=NAMES)
@pytest.mark.parametrize("place", PLACES)
def test_invalid_timeout_is_rejected_everywhere(place: str, value: Any) -> None:
    of_run = place in ("deadline", "lease_seconds")
    PLACES[place](1_000_000 if of_run else math.inf)
    if of_run and value == "3":
        return  # refused as of a wrong type
    message = f"{place} must be a number" if of_run else r"timeout must be a positive number of seconds.* 1,000,000"
    with pytest.raises(UsageError, match=message) as refused:
        PLACES[place](value)
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("value", WRONG, ids=NAMES)
async def test_call_rejects_invalid_timeout_before_running(value: Any) -> None:
    async with connect("memory:", transport=MemoryTransport({"do": _never}), store="none:") as app:
        with pytest.raises(UsageError, match="timeout must be"):
            await app.call("do", timeout=value)


async def _never(_: Mapping[str, object], __: Call) -> None:
    raise AssertionError


@pytest.mark.parametrize("value", WRONG[:-1], ids=NAMES[:-1])
async def test_job_with_invalid_timeout_is_failed_and_not_unknown(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="timeout must be a positive number of seconds, at most 1,000,000"):
        parse_job({"capability": "do", "timeout": value})

    def opened(target: str, **options: Any) -> Any:
        return connect(target, transport=MemoryTransport({"do": _never}), store=options["store"])

    async with Pool(1, connect=opened, store=tmp_path) as pool:
        outcome = await pool.run(Job("do", target="memory:", timeout=value))
    assert (outcome.state, outcome.error_code) == (State.FAILED, "INVALID_PARAMS")


@pytest.mark.parametrize("text", ["1000000000.1", "1e308", "inf", "nan", "-1", "0", "9" * 400])
def test_timeout_variable_in_milliseconds_has_same_range(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name in ("ABP_CALL_TIMEOUT", "ABP_BROWSER_TIMEOUT", "ABP_DOWNLOAD_TIMEOUT"):
        monkeypatch.setenv(name, "1e9")
        Settings.load()
        monkeypatch.setenv(name, text)
        with pytest.raises(UsageError, match=f"{name}: .*milliseconds above 0, at most 1,000,000,000"):
            Settings.load()
        monkeypatch.delenv(name)


@pytest.mark.parametrize("text", ["1e308", "1000000.1", "true", "0", "1" + "0" * 400])
def test_named_app_timeout_has_same_range(tmp_path: Path, text: str) -> None:
    config = tmp_path / "abp.toml"
    config.write_text(f'[apps.docs]\nurl = "ws://127.0.0.1:1/"\ntimeout = {text}\n')
    with pytest.raises(UsageError, match=r"docs.*timeout"):
        app_entries(read_config(config))
