"""The environment of the driver."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from transports.playwright import _process as browser_process
from transports.playwright._process import child_environment, compile_cache

NAMES = ("TMPDIR", "NODE_COMPILE_CACHE")


def _variables() -> tuple[str | None, ...]:
    return tuple(map(os.environ.get, NAMES))


def test_the_driver_gets_a_folder_for_compiled_scripts_that_only_its_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NODE_COMPILE_CACHE", raising=False)
    before, cache = _variables(), tmp_path / "cache/abp-transports/node"
    with child_environment(tmp_path, compile_cache()), child_environment(tmp_path):
        assert _variables() == (str(tmp_path), str(cache))
    assert _variables() == before and cache.stat().st_mode & 0o777 == 0o700
    for folder in (cache, cache.parent, tmp_path / "cache"):
        folder.chmod(0o777)
        with child_environment(tmp_path, compile_cache()):
            assert _variables() == (str(tmp_path), None)
        folder.chmod(0o700)
    cache.rmdir()
    cache.symlink_to(tmp_path)
    with child_environment(tmp_path, compile_cache()):
        assert _variables() == (str(tmp_path), None)


@pytest.mark.parametrize("cache_home", ["/dev/null/cache", "~nobody-by-this-name/cache"])
def test_a_place_that_cannot_be_had_is_done_without(
    cache_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_COMPILE_CACHE", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda: Path(cache_home))
    with child_environment(tmp_path, compile_cache()):
        assert _variables() == (str(tmp_path), None)
    monkeypatch.setenv("NODE_COMPILE_CACHE", "mine")
    with child_environment(tmp_path, compile_cache()):
        assert _variables() == (str(tmp_path), "mine")


async def test_the_folder_for_compiled_scripts_is_looked_for_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NODE_COMPILE_CACHE", raising=False)
    mkdir, given = Path.mkdir, list[str | None]()

    def noted(path: Path, *args: Any, **options: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        mkdir(path, *args, **options)

    async def start() -> tuple[None, list[int]]:
        given.append(os.environ.get("NODE_COMPILE_CACHE"))
        return None, []

    monkeypatch.setattr(Path, "mkdir", noted)
    monkeypatch.setattr(browser_process, "start_driver", start)
    await browser_process.BrowserProcess().start_driver(tmp_path)
    assert given == [str(tmp_path / "abp-transports/node")]
