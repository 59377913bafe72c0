"""Timeouts as callers give them: their range is one, wherever they come in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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
def test_a_timeout_has_a_million_seconds_at_most(value: float) -> None:
    assert timeout_seconds(value, 5) == value
    assert timeout_seconds(math.inf, 5) == math.inf  # no limit at all
    assert timeout_seconds(None, 5000) == 5


@pytest.mark.parametrize("value", WRONG, ids=NAMES)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"timeout must be a positive number of seconds.* 1,000,000") as refused:
        timeout_seconds(value, 5)
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("value", WRONG, ids=NAMES)
async def test_a_call_and_a_session_refuse_it_before_anything_runs(tmp_path: Path, value: Any) -> None:
    ran: list[object] = []

    async def do(params: Mapping[str, object], _: Call) -> None:
        ran.append(params)

    def transport() -> MemoryTransport:
        return MemoryTransport({"do": do})

    with pytest.raises(UsageError, match="timeout must be"):
        connect("memory:", transport=transport(), store=tmp_path, timeout=value)
    async with connect("memory:", transport=transport(), store=tmp_path) as app:
        with pytest.raises(UsageError, match="timeout must be"):
            await app.call("do", timeout=value)
    with pytest.raises(UsageError, match="timeout must be"):
        Pool(timeout=value)
    assert not ran


@pytest.mark.parametrize("value", WRONG, ids=NAMES)
def test_a_transport_and_a_browser_refuse_it(value: Any) -> None:
    for make in (
        partial(PlaywrightTransport, "http://127.0.0.1:9/"),
        partial(WebSocketTransport, "ws://127.0.0.1:9/"),
        Browser,
    ):
        make(timeout=math.inf)
        with pytest.raises(UsageError, match="timeout must be"):
            make(timeout=value)


@pytest.mark.parametrize("value", WRONG[:-1], ids=NAMES[:-1])
async def test_a_job_that_has_it_fails_and_is_not_unknown(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="timeout must be a positive number of seconds, at most 1,000,000"):
        parse_job({"capability": "do", "timeout": value})

    async def do(_: Mapping[str, object], __: Call) -> None:
        raise AssertionError

    def opened(target: str, **options: Any) -> Any:
        return connect(target, transport=MemoryTransport({"do": do}), store=options["store"])

    async with Pool(1, connect=opened, store=tmp_path) as pool:
        outcome = await pool.run(Job("do", target="memory:", timeout=value))
    assert (outcome.state, outcome.error_code) == (State.FAILED, "INVALID_PARAMS")


@pytest.mark.parametrize("text", ["1000000000.1", "1e308", "inf", "nan", "-1", "0", "9" * 400])
def test_a_variable_in_milliseconds_has_the_same_range(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name in ("ABP_CALL_TIMEOUT", "ABP_BROWSER_TIMEOUT", "ABP_DOWNLOAD_TIMEOUT"):
        monkeypatch.setenv(name, "1e9")
        Settings.load()
        monkeypatch.setenv(name, text)
        with pytest.raises(UsageError, match=f"{name}: .*milliseconds above 0, at most 1,000,000,000"):
            Settings.load()
        monkeypatch.delenv(name)


@pytest.mark.parametrize("text", ["1e308", "1000000.1", "true", "0", "1" + "0" * 400])
def test_an_app_with_a_name_has_the_same_range(tmp_path: Path, text: str) -> None:
    config = tmp_path / "abp.toml"
    config.write_text(f'[apps.docs]\nurl = "ws://127.0.0.1:1/"\ntimeout = {text}\n')
    with pytest.raises(UsageError, match=r"docs.*timeout"):
        app_entries(read_config(config))


@pytest.mark.parametrize("value", WRONG[:-1], ids=NAMES[:-1])
def test_the_times_of_a_run_have_the_same_range(value: Any) -> None:
    for name in ("deadline", "lease_seconds"):
        assert getattr(replace(RunOptions(), **{name: 1_000_000}), name) == 1_000_000  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"{name} must be a number"):
            replace(RunOptions(), **{name: value})
