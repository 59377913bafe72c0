"""Systems without POSIX: nothing is touched at import that they lack, and files are kept there, too."""

from __future__ import annotations

from pathlib import Path

from tests.support.local_store import run_script

#: First everything as it is, so that other distributions and the standard library have what they need. Then again.
_IMPORT = """
import sys
from tests.support.no_posix import forget, import_all
names = import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "transports"]:
    del sys.modules[name]
forget()
assert import_all() == names and len(names) > 300
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
from transports.artifacts.local import tree
from transports.artifacts.local.portable import PortableFolder
from transports.batch.ledger.sqlite import SqliteDatabase
from transports.errors import Corrupt, StoreError
from transports.surfaces.web.state import signing_key

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
    content = next((root / ".abp/blobs").glob("*/" + ref.sha256))
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
assert tree._way is PortableFolder
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


def test_every_module_is_imported_on_a_system_without_posix() -> None:
    assert run_script(_IMPORT, timeout=120) == "imported\n"


def test_files_locks_and_keys_are_kept_on_a_system_without_posix(tmp_path: Path) -> None:
    assert run_script(_KEEP, tmp_path, timeout=120) == "kept\n"
