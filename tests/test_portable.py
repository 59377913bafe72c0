"""Systems without POSIX: nothing is touched at import that they lack, and files are kept there, too."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from tests.support.local_store import run_script
from transports.artifacts._files import replacing
from transports.batch.ledger._schema import SqliteDatabase
from transports.errors import ProfileInUse
from transports.mcp import _stdio as stdio, _streams as streams
from transports.mcp._servers import StdioServer
from transports.playwright._browser import lock_profile
from transports.playwright._process import child_environment, is_running
from transports.session._sign_in import _write_state

#: First everything as it is, so that other distributions and the standard library have what they need. Then again.
_IMPORT = """
import sys
from tests.support.no_posix import forget, import_all
names = import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "transports"]:
    del sys.modules[name]
forget()
assert import_all() == names and len(names) > 200
print("imported")
"""

_KEEP = """
import asyncio, os, sys
from pathlib import Path
import platformdirs, psutil, sqlite3
from tests.support.no_posix import forget
runner = asyncio.Runner()
runner.get_loop()  # which has a pair of sockets
forget()
from transports.artifacts import AuditLog, LocalStore, Scope
from transports.artifacts._signing import signing_key
from transports.artifacts.local import _tree
from transports.artifacts.local._tree import PortableFolder
from transports.batch.ledger._schema import SqliteDatabase
from transports.errors import Corrupt, StoreError

async def keep(root):
    store = LocalStore(root, audit=AuditLog(root.with_name("audit")))
    data = os.urandom(300_000)
    ref = await store.put_bytes(data, filename="a.bin", durability="process")
    assert (await store.put_bytes(data, filename="b.bin")).path.read_bytes() == data == await store.get(ref.id)
    async with store.stage() as staged:
        staged.follow()
        await staged.prepare()
        staged.path.write_bytes(data * 20)
        large = await staged.commit(filename="large.bin")
    assert await store.get(large.id) == data * 20 and await store.export(large, root.with_name("copy"))
    assert len(await store.list()) == 2 and await store.change_token() is None
    assert (await store.fsck()).problems == () and await store.gc() == []
    content = root / ".abp/blobs" / ref.sha256
    times = content.stat()
    content.write_bytes(data[::-1])  # as a disk forgets: the times stay
    os.utime(content, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        try:
            await store.get(ref.id)
        except Corrupt:
            continue
        raise AssertionError
    assert await store.delete(ref.id) and await store.delete(large.id) and await store.list() == []
    assert [path.name for path in root.iterdir()] == [".abp"] and not list((root / ".abp/staging").iterdir())
    elsewhere = root.with_name("elsewhere")
    elsewhere.mkdir()
    (root / "link").symlink_to(elsewhere)
    try:
        await LocalStore(root / "link").put_bytes(data)
    except StoreError as error:
        assert "symlink" in str(error) and not list(elsewhere.iterdir())
    else:
        raise AssertionError

root = Path(sys.argv[1])
assert _tree._folder_class is PortableFolder
with runner:
    runner.run(keep(root / "out"))
os.environ["XDG_STATE_HOME"] = str(root)
assert signing_key() == signing_key()
one, other = (SqliteDatabase(root) for _ in range(2))
one.begin_work("worker")
assert other.lost_workers(["worker"]) == []
one.close()
assert other.lost_workers(["worker"]) == ["worker"] and not list((root / "workers").iterdir())
print("kept")
"""


@pytest.mark.slow
def test_every_module_imports_without_posix() -> None:
    assert run_script(_IMPORT, timeout=120) == "imported\n"


@pytest.mark.slow
def test_files_locks_and_keys_work_without_posix(tmp_path: Path) -> None:
    assert run_script(_KEEP, tmp_path, timeout=120) == "kept\n"


def test_worker_ends_while_its_file_is_open_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is open cannot be removed on Windows."""
    one, other = (SqliteDatabase(tmp_path) for _ in range(2))
    one.begin_work("worker")

    def refused(path: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(13, "it is open", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        one.close()
        assert other.lost_workers(["worker"]) == ["worker"]
    assert other.lost_workers(["worker"]) == ["worker"] and not list((tmp_path / "workers").iterdir())
    other.close()


def test_briefly_locked_file_is_replaced_after_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a virus scanner opens what is new."""
    monkeypatch.setattr("transports.artifacts._files.OPEN_FILES_MOVE", False)
    replace, tries = Path.replace, 0

    def refused_once(path: Path, target: Path) -> Path:
        nonlocal tries
        tries += 1
        if tries % 2:
            raise PermissionError(13, "it is open", str(path))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refused_once)
    _write_state(tmp_path / "state.json", "{}")
    with replacing(tmp_path / "copy"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "state.json"] and tries == 4


async def test_mcp_server_children_end_without_process_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_HAS_GROUPS", False)
    started = tmp_path / "pid"
    server = StdioServer("sh", ("-c", f"sleep 1000 & echo $! > {started}.new; mv {started}.new {started}; cat"))
    async with asyncio.timeout(30):
        async with streams.stdio_streams(server, streams.Stderr(server), max_bytes=1000, on_exit=print):
            while not started.exists():
                await asyncio.sleep(0.01)
            child = psutil.Process(int(started.read_text()))
        while is_running(child):
            await asyncio.sleep(0.01)


def test_programs_find_run_folder_via_system_temp_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"TMPDIR": None, "TEMP": "t", "TMP": None}
    for name, value in before.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    with child_environment(tmp_path), child_environment(tmp_path):
        assert {os.environ[name] for name in before} == {str(tmp_path)}
    assert {name: os.environ.get(name) for name in before} == before


@pytest.mark.parametrize("name", ["lockfile", "parent.lock"])
def test_profile_with_exclusively_locked_file_is_in_use(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As browsers on Windows lock it."""
    (tmp_path / name).touch()
    with lock_profile(tmp_path):
        pass

    def refused(path: Path, mode: str) -> None:
        raise PermissionError if path.name == name else FileNotFoundError

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(ProfileInUse), lock_profile(tmp_path):
        pass
