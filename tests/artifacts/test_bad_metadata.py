"""The local store: metadata files that somebody else wrote break nothing but themselves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, PNG, visible
from transports.artifacts import LocalStore, Retention
from transports.artifacts.objects._index import metadata_of
from transports.errors import Corrupt

DEEP = "[" * 900 + "]" * 900
#: Field and its value as JSON.
FIELDS = [
    ("size_bytes", str(1 << 70)),
    ("size_bytes", str(1 << 63)),
    ("size_bytes", "9" * 5000),
    ("size_bytes", "true"),
    ("stored", "1e400"),
    ("stored", "NaN"),
    ("stored", "-Infinity"),
    ("stored", str(10**400)),
    ("stored", "1e300"),
    ("mime_type", r'"\ud800"'),
    ("mime_type", r'"text/html\r\nX-A: b"'),
    ("names", r'[["\udfff", ""]]'),
    ("names", r'[["a", "\ud800"]]'),
    ("names", json.dumps([["x" * 300, ""]])),
    ("source", r'{"created": "\udcff"}'),
    ("source", '{"a": 1e400}'),
    ("source", '{"a": NaN}'),
    ("source", f'{{"a": {1 << 70}}}'),
    ("source", f'{{"a": {DEEP}}}'),
    ("source", r'{"\ud800": 1}'),
    ("scope", r'{"session": "\ud800"}'),
]


async def assert_breaks_only_itself(root: Path, good: str, bad: str) -> None:
    async with LocalStore(root, retention=Retention.only(ttl_seconds=3600)) as store:
        for _ in range(2):
            assert [ref.id for ref in await store.list()] == [good]
            assert list(await store.gc()) == []
            found = await store.fsck()
            assert ("metadata", bad) in [(one.kind, one.id) for one in found.problems]
        with pytest.raises(Corrupt, match=bad):
            await store.stat(bad)
        assert await store.get(good) == PNG
        assert await store.delete(bad)


@pytest.mark.load
@pytest.mark.fault(46)
async def test_a_field_that_fits_nowhere_breaks_only_its_artifact(store: LocalStore, root: Path) -> None:
    good = (await store.put_bytes(PNG)).id
    for name, value in FIELDS:
        bad = (await store.put_bytes(PDF)).id
        meta = root / ".abp/meta" / f"{bad}.json"
        fields = {key: json.dumps(old) for key, old in json.loads(meta.read_bytes()).items()} | {name: value}
        meta.write_text("{" + ",".join(f'"{key}": {one}' for key, one in fields.items()) + "}")
        (root / ".abp/index.sqlite").unlink(missing_ok=True)
        try:
            await assert_breaks_only_itself(root, good, bad)
        except Exception as error:
            raise AssertionError(f"{name}: {value[:60]}") from error


@pytest.mark.fault(46)
@pytest.mark.parametrize("kind", ["pipe", "folder", "surrogate", "huge"])
async def test_a_file_that_is_no_metadata_breaks_only_its_artifact(kind: str, store: LocalStore, root: Path) -> None:
    good, bad = (await store.put_bytes(PNG)).id, (await store.put_bytes(PDF)).id
    meta = root / ".abp/meta" / f"{bad}.json"
    content = meta.read_bytes()
    meta.unlink()
    if kind == "pipe":
        os.mkfifo(meta)
    elif kind == "folder":
        meta.mkdir()
    elif kind == "surrogate":
        meta.write_bytes(content.replace(b'"application/pdf"', b'"\xed\xa0\x80"'))
    else:
        with meta.open("wb") as file:
            file.write(content)
            file.truncate(1 << 33)
    if kind in ("pipe", "folder"):
        async with LocalStore(root) as again:
            assert [ref.id for ref in await again.list()] == [good]
            assert ("metadata", bad) in [(one.kind, one.id) for one in (await again.fsck()).problems]
            assert list(await again.gc()) == [] and await again.get(good) == PNG
    else:
        await assert_breaks_only_itself(root, good, bad)


@pytest.mark.fault(46)
@pytest.mark.parametrize("kind", ["broken", "pipe", "folder", "symlink"])
async def test_repair_puts_bad_metadata_into_quarantine_with_its_content(
    kind: str, store: LocalStore, root: Path, clock: Clock
) -> None:
    good, bad = await store.put_bytes(PNG), await store.put_bytes(PDF, filename="report.pdf")
    meta = root / ".abp/meta" / f"{bad.id}.json"
    meta.unlink()
    if kind == "broken":
        meta.write_text("{")
    elif kind == "pipe":
        os.mkfifo(meta)
    elif kind == "folder":
        meta.mkdir()
    else:
        meta.symlink_to(root / "report.pdf")
    reported = [one.kind for one in (await store.fsck()).problems]
    assert "metadata" in reported and os.path.lexists(meta)  # without being asked, nothing is moved
    (told,) = [one for one in (await store.fsck(repair=True)).problems if one.kind == "metadata"]
    assert (told.id, "quarantine" in told.message) == (bad.id, True)
    assert {path.name for path in (root / ".abp/quarantine").iterdir()} == {f"{bad.id}.json", bad.sha256}
    assert visible(root) == [good.filename]
    assert [one.kind for one in (await store.fsck(repair=True)).problems] == ["symlink"] * (kind == "symlink")
    assert await store.list() == [good] and list(await store.gc()) == []
    again = await store.put_bytes(PDF)
    assert again.id == bad.id and await store.get(again.id) == PDF
    await store.delete(again.id)
    clock.passes(25 * 3600)
    await store.gc()
    left = [] if kind == "broken" else [f"{bad.id}.json"]  # what is no file is left to its owner
    assert [path.name for path in (root / ".abp/quarantine").iterdir()] == left
    assert visible(root) == [good.filename] and await store.get(good.id) == PNG


def test_a_row_of_an_index_with_the_metadata_of_another_id_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    metadata = json.dumps({"version": 1, "id": "EXPORT_0123456789ab"})
    assert metadata_of(metadata, "export_0123456789ab") is None
    assert "a row of the index is skipped" in caplog.text
