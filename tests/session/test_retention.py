"""Retention by settings, and what sessions and calls do under one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.apps import PDF, pdf
from transports import MemoryTransport, Result, Retention, Session, UsageError, connect
from transports.artifacts import ArtifactStore, LocalStore, Scope, open_store
from transports.session._settings import read_config, retention_settings
from transports.testing import Call


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ABP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


# --- where it comes from ----------------------------------------------------------------------------------------------


def test_options_override_variables_and_variables_override_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[retention]\nttl_seconds = 60\nmax_trace_bytes = "1MB"\nmax_artifacts_per_trace = 7\n[mcp]\n')
    monkeypatch.setenv("ABP_RETENTION_TTL_SECONDS", "2h")
    monkeypatch.setenv("ABP_RETENTION_MAX_SESSION_BYTES", "500MiB")
    options: Mapping[str, object] = {"max_session_bytes": "none", "cleanup_strategy": "fifo"}
    assert retention_settings(options=options, file=read_config(file)) == Retention.only(
        ttl_seconds=7200, max_trace_bytes=10**6, max_artifacts_per_trace=7, cleanup_strategy="fifo"
    )
    assert retention_settings() == Retention.only(ttl_seconds=7200, max_session_bytes=500 << 20)
    assert connect("memory:", transport=MemoryTransport({})).store.retention == retention_settings()


def test_unset_limits_have_defaults_only_if_retention_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert retention_settings() is None
    assert retention_settings(options={"enabled": "false"}) is None
    assert retention_settings(options={"enabled": "true"}) == Retention()
    assert retention_settings(options={"ttl_seconds": "7d"}) == Retention.only(ttl_seconds=7 * 86400)
    monkeypatch.setenv("ABP_RETENTION_ENABLED", "1")
    assert retention_settings(options={"ttl_seconds": "none"}) == Retention(ttl_seconds=None)


@pytest.mark.parametrize(
    ("options", "variable", "toml", "message"),
    [
        ({"tll_seconds": "1h"}, None, "", "--retention tll_seconds: unknown; did you mean ttl_seconds?"),
        ({"ttl_seconds": "soon"}, None, "", "--retention ttl_seconds: 'soon' is not a time; use 90s, 30m"),
        ({}, ("MAX_TRACE_BYTES", "-1"), "", "ABP_RETENTION_MAX_TRACE_BYTES: "),
        ({}, ("CLEANUP_STRATEGY", "random"), "", "ABP_RETENTION_CLEANUP_STRATEGY: "),
        ({}, None, "ttl_seconds = -1", "own.toml: retention.ttl_seconds: "),
        ({}, None, "ttl_second = 1", "own.toml: retention.ttl_second: unknown; did you mean ttl_seconds?"),
    ],
)
def test_invalid_value_error_names_its_source(
    options: Mapping[str, object],
    variable: tuple[str, str] | None,
    toml: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable:
        monkeypatch.setenv(f"ABP_RETENTION_{variable[0]}", variable[1])
    Path("own.toml").write_text(f"[retention]\n{toml}\n")
    with pytest.raises(UsageError) as raised:
        retention_settings(options=options, file=read_config(Path("own.toml")))
    assert message in raised.value.message


def test_discovered_config_does_not_enable_retention(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "abp.toml").write_text("[retention]\nttl_seconds = 0\n")
    assert retention_settings(file=read_config()) is None
    assert "abp.toml: ignored retention.ttl_seconds: " in caplog.text and "ABP_CONFIG=abp.toml" in caplog.text
    assert retention_settings(file=read_config(Path("abp.toml"))) == Retention.only(ttl_seconds=0)


# --- whose limits: sessions and calls ---------------------------------------------------------------------------------


async def make(params: Mapping[str, object], call: Call) -> object:
    count = params.get("count", 1)
    assert isinstance(count, int)
    return {"pages": [pdf(PDF + f"{params.get('name', '')} {number}".encode()) for number in range(count)]}


def making(store: ArtifactStore | str | Path) -> Session:
    return connect("memory:", transport=MemoryTransport({"file.make": make}), store=store)


async def held(view: ArtifactStore, result: Result) -> list[bool]:
    return [await view.exists(ref.id) for ref in result.artifacts.values()]


@pytest.mark.requirement("R2-7.1c", "R2-7.1d", "R2-7.1e", "R2-7.1f")
@pytest.mark.parametrize("kind", ["memory", "local"])
async def test_retention_limits_apply_per_session_and_per_call(kind: str, tmp_path: Path) -> None:
    limits = Retention.only(max_artifacts_per_session=5, max_artifacts_per_trace=3)
    store = open_store("memory:" if kind == "memory" else tmp_path / "out", retention=limits)

    async with store, making(store) as one, making(store) as two:
        others = await two.call("file.make", {"count": 3, "name": "other"})
        first = await one.call("file.make", {"count": 3, "name": "first"}, call_id="the-first")
        assert {ref.scope.trace for ref in first.artifacts.values()} == {"the-first"}
        assert len({ref.scope.session for ref in first.artifacts.values()}) == 1
        assert await held(store, first) == [True] * 3 and not first.warnings
        second = await one.call("file.make", {"count": 2, "name": "second"}, call_id="long" * 100)
        assert await held(store, first) == [True] * 3 and await held(store, second) == [True] * 2
        third = await one.call("file.make", {"count": 4, "name": "third"})
        assert await held(store, third) == [False, True, True, True]
        assert third.warnings == ("the answer is over the limits of the retention; removed again: pages.0",)
        assert sum(await held(store, first)) + sum(await held(store, second)) == 2
        assert await held(store, others) == [True] * 3
        assert await held(one.store, others) == [False] * 3
        assert len(await one.store.list()) == 5


@pytest.mark.requirement("R2-6.4l")
@pytest.mark.parametrize("cleanup", [True, False])
async def test_session_artifacts_are_removed_at_end_if_configured(cleanup: bool) -> None:
    retention = Retention.only(cleanup_on_session_end=cleanup)
    async with open_store("memory:", retention=retention) as store, making(store) as stays:
        others = await stays.call("file.make", {"count": 1, "name": "other"})
        async with making(store) as ends:
            own = await ends.call("file.make", {"count": 2, "name": "own"})
            assert await held(store, own) == [True, True]
        assert await held(store, own) == [not cleanup] * 2
        assert await held(store, others) == [True]


@pytest.mark.load
@pytest.mark.requirement("R2-7.1a", "R2-7.1b", "R2-7.1c", "R2-7.1d", "R2-7.1e", "R2-7.1f")
async def test_calls_are_unlimited_without_retention(tmp_path: Path) -> None:
    """More files than a trace may have by default."""
    async with making(tmp_path / "out") as app:
        assert app.store.retention is None
        result = await app.call("file.make", {"count": 101, "name": "many"})
        assert await held(app.store, result) == [True] * 102 and not result.warnings  # and the answer as JSON
    async with making(open_store("memory:", retention=Retention())) as app:
        result = await app.call("file.make", {"count": 101, "name": "many"})
        assert (await held(app.store, result)).count(True) == 100 and result.warnings


async def test_caller_scope_is_kept_and_none_set_without_retention() -> None:
    store = open_store("memory:", retention=Retention())
    own = Scope(user="ann", session="s", trace="t")
    for view, scope in ((store.scoped(own), own), (open_store("memory:"), Scope())):
        async with making(view) as app:
            (ref,) = (await app.call("file.make")).artifacts.values()
            assert ref.scope == scope


async def test_a_session_closes_only_a_store_that_it_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    original = LocalStore.aclose

    async def aclose(self: LocalStore) -> None:
        closed.append(self.url)
        await original(self)

    monkeypatch.setattr(LocalStore, "aclose", aclose)
    for address in (tmp_path / "out", (tmp_path / "out").as_uri()):
        closed.clear()
        async with making(address) as app:
            await app.call("file.make")
            assert closed == []
        assert closed == [(tmp_path / "out").as_uri()]
    closed.clear()
    async with making(open_store(tmp_path / "out", retention=Retention(cleanup_on_session_end=True))) as app:
        await app.call("file.make")
    assert closed == []
