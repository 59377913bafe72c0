"""Files that somebody else may have made: none is waited for, and none is without end, wherever one is read."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from transports import BinaryData, Browser, LocalStore, StoreError, UsageError, connect
from transports._internal.files import open_regular, read_regular
from transports.artifacts._signing import find_server, signing_key
from transports.playwright import _process as browser_process
from transports.playwright._find import find_ffmpeg
from transports.playwright._process import child_environment
from transports.playwright._scripts import read_adapter
from transports.playwright._source import PageSource
from transports.session._settings import is_trusted, read_config, trust, untrusted_file_advice
from transports.surfaces.cli import main


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 65 << 20)


def read_profile(path: Path) -> object:
    pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")
    from transports.mcp.views import _host as _profiles

    return _profiles.read_profile(path)


def read_servers(path: Path) -> object:
    pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")
    return connect(f"mcp:{path}#x", store="none:")


READERS: dict[str, Callable[[Path], object]] = {
    "settings": read_config,
    "state of a browser": lambda path: PageSource(storage_state=path)._load_storage_state(),
    "profile of a host": read_profile,
    "adapter": lambda path: read_adapter(path, "https://app.example/"),
    "list of MCP servers": read_servers,
    "parameter": BinaryData.from_path,
}


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize("make", [pipe, endless, Path.mkdir, huge])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_only_small_regular_files_are_read(
    tmp_path: Path, read: Callable[[Path], object], make: Callable[[Path], object]
) -> None:
    path = tmp_path / "odd.toml"
    make(path)
    if make is huge and read == BinaryData.from_path:
        assert BinaryData.from_path(path).size == 65 << 20  # content may be large
        return
    reason = r"larger than [\d,]+ bytes" if make is huge else "(not a regular file|directory)"
    with pytest.raises(UsageError, match=f"read.*{reason}"):
        read(path)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "a\ud800", "file/x"])
def test_impossible_file_name_raises_os_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as refused:
        open_regular(tmp_path / name)
    assert refused.value.strerror


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs files whose size is not known")
def test_read_limit_counts_bytes_also_of_a_file_reporting_zero(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_regular(path, 4) == b"1234"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_regular(path, 3)
    assert read_regular("/proc/self/status", 1 << 20).startswith(b"Name:")
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular("/proc/self/status", 10)


@pytest.mark.parametrize(
    "use",
    [
        LocalStore,
        lambda path: read_adapter(path, "http://app/"),
        lambda path: Browser(profile=path),
        lambda path: PageSource(storage_state=path)._load_storage_state(),
        read_servers,
    ],
)
def test_home_of_unknown_user_is_reported(use: Callable[[str], object]) -> None:
    with pytest.raises(UsageError, match=r"'~no-such-user/file.json': unknown home folder"):
        use("~no-such-user/file.json")


async def test_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the name of a file or folder is empty"):
        Browser(profile="")
    with pytest.raises(UsageError, match="is a folder; name the file of a recording"):
        async with connect("ws://127.0.0.1:9/", record="", store="memory:"):
            pass
    for target in ("replay:", "replay:/"):
        with pytest.raises(UsageError, match="is a folder; name the file of a recording"):
            async with connect(target, store="memory:"):
                pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["call https://app.example/ x --profile", "serve --port 0 --state"])
def test_empty_option_for_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Such as that of an unset variable in ``--profile "$PROFILE"``."""
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), ""]) == 2
    assert "the name of the folder is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_byte_order_mark_of_a_host_profile_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    known = files("transports.mcp.views") / "hosts" / "spec.toml"
    path.write_text(known.read_text(encoding="utf-8"), encoding="utf-8-sig")
    read_profile(path)


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of a container: the environment names no home folder, and the system does not know the user."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)


@pytest.mark.skipif(os.name != "posix", reason="needs users")
@pytest.mark.usefixtures("homeless")
def test_user_without_home_can_start_browser_and_is_told_what_needs_one(tmp_path: Path) -> None:
    assert not find_ffmpeg()[1]
    with child_environment(tmp_path):
        assert os.environ["HOME"] == str(tmp_path)
    assert "HOME" not in os.environ

    settings = tmp_path / "abp.toml"
    assert not is_trusted(settings, b"") and "you have not trusted" in untrusted_file_advice(settings)
    with pytest.raises(UsageError, match="this user has no home folder; set HOME; use --config FILE"):
        trust(settings, b"")

    assert find_server("file:///a") is None
    with pytest.raises(StoreError, match="this user has no home folder; set HOME"):
        signing_key()


@pytest.mark.parametrize(
    "use",
    [
        lambda: LocalStore(),
        lambda: Browser().__aenter__(),
    ],
)
async def test_system_without_temporary_folder_is_reported(
    use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is read-only."""

    def find_none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", find_none)
    with pytest.raises(UsageError, match="set TMPDIR to one that can"):
        await use()


async def test_temporary_folder_that_was_removed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by programs that tidy up /tmp."""
    monkeypatch.setattr(browser_process, "_folder_path", None)  # an open browser of another test has a folder already
    monkeypatch.setattr(browser_process, "_folder_users", 0)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
    with pytest.raises(StoreError, match=f"cannot make a temporary folder in {folder}: No such file.* with TMPDIR"):
        await Browser().__aenter__()
