"""A local store with very many artifacts, made once for all measurements of a run that want one."""

from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.benchmarks.pages import Bench
from tests.support.gallery import PICTURE
from transports import LocalStore
from transports.artifacts import Scope
from transports.artifacts._ref import Metadata, Name, artifact_id

__all__ = ["SESSIONS", "filled_store"]

#: Sessions that made the artifacts, as many each.
SESSIONS = 100
#: The newest artifacts, which have their content: a gallery shows it. Of the others there is only the metadata.
_WHOLE = 2000
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_KINDS = (
    ("txt", "text/plain", b"line one\nline two\nline three\n"),
    ("csv", "text/csv", b"name,city,amount\nada,london,1\nalan,manchester,2\n"),
    ("png", "image/png", PICTURE),
    ("json", "application/json", b'{"rows": [1, 2, 3], "text": "some words"}'),
    ("zip", "application/zip", b"PK"),
)


async def filled_store(bench: Bench, count: int) -> Path:
    """The folder of a local store of so many artifacts, the same one for each measurement that asks for it."""
    root = bench.shared / f"{count}-artifacts"
    if not root.exists():
        async with LocalStore(root) as store:
            await store.delete((await store.put_bytes(b"x")).id)  # makes the folders
        await asyncio.to_thread(_fill, root, count)
    return root


def _fill(root: Path, count: int) -> None:
    """Write the files of the artifacts as the store writes them; it makes its index of them. Storing each artifact
    through the store would wait for the disk five times."""
    meta, blobs = root / ".abp" / "meta", root / ".abp" / "blobs"
    blobs.mkdir(exist_ok=True)
    for number in range(count):
        extension, mime_type, content = _KINDS[number % len(_KINDS)]
        data = content + b"\n%d" % number  # each another content; a picture is read up to its own end
        created = (_FIRST + timedelta(seconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        source: dict[str, object] = {"capability": "export.files", "created": created, "verified": True}
        scope = Scope(session=f"session-{number % SESSIONS}")
        sha256 = hashlib.sha256(data).hexdigest()
        key = artifact_id("export_files", sha256, scope)
        names = (Name(f"export_files_{number}.{extension}", ""),)
        record = Metadata(key, sha256, len(data), mime_type, names, source, scope, time.time())
        (meta / f"{key}.json").write_bytes(record.encode())
        if number >= count - _WHOLE:
            (blobs / sha256).write_bytes(data)
