"""Metadata of artifacts: what is written is read, and a file that somebody else wrote breaks nothing but itself."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.local_store import PDF, PNG, visible
from transports.artifacts import LocalStore, Retention
from transports.artifacts._ref import Metadata
from transports.artifacts.objects._index import metadata_of
from transports.errors import Corrupt

FIELDS: dict[str, object] = {
    "version": 1,
    "id": "a_0123456789ab",
    "sha256": "0123456789abcdef" * 4,
    "size_bytes": 5,
    "mime_type": "text/plain",
    "names": [["a.txt", ""], ["b.txt", "b.txt"]],
    "source": {"created": "2026-01-01T00:00:00Z", "verified": True, "x": None, "warnings": ["w"]},
    "scope": {"session": "s", "tenant": "t"},
    "stored": 12.5,
    "blob": "",
}
END_OF_9999 = 253402300800.0


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


VALID: dict[str, list[object]] = {
    "size_bytes": [0, (1 << 63) - 1],
    "mime_type": ["", "ä/b"],
    "names": [[["é", ""]], [["ä" * 127 + "x", ""]]],
    "source": [{}, {"n": 1.5}, {"a": nested(498)}, {"a": {"b": 1}}, {"a": "é\\"}],
    "scope": [{}, {"session": None}],
    "stored": [0, 3, END_OF_9999],
    "blob": ["x"],
    "more": [1],
}
#: Values that are refused, as JSON; of a :class:`str`, its text is the JSON.
INVALID: dict[str, list[object]] = {
    "version": [2, '"1"'],
    "id": ['"b_0123456789ab"', 1],
    "sha256": [f'"{"0" * 63}"', f'"{"G" * 64}"', f'"{"0" * 64}\\n"', '"../x"', None],
    "size_bytes": [-1, True, 5.0, 1 << 63, 1 << 70, "9" * 5000, '"5"'],
    "mime_type": [r'"a\nb"', r'"text/html\r\nX-A: b"', r'"\ud800"', 1],
    "names": [
        *([], [["a"]], [["a", "", ""]], [["..", ""]], [["../../x", ""]], [["a/b", ""]], {}, [[1, ""]]),
        *([["x" * 256, ""]], [["ä" * 128, ""]], r'[["\udfff", ""]]', r'[["a", "\ud800"]]'),
    ],
    "source": [
        *([], {"n": 1 << 70}, {"n": [{"m": -(1 << 70)}]}, {"a": nested(499)}),
        *(r'{"created": "\udcff"}', '{"a": 1e400}', '{"a": NaN}', r'{"\ud800": 1}'),
    ],
    "scope": [{"other": "x"}, {"session": ""}, {"session": 1}, [], r'{"session": "\ud800"}'],
    "stored": [None, -1, -0.5, END_OF_9999 + 0.5, "1e300", "1e400", "NaN", "-Infinity", str(10**400), '"1"'],
    "blob": [1, None],
}


def in_json(fields: dict[str, object], **other: object) -> bytes:
    texts = {name: json.dumps(value) for name, value in fields.items()}
    texts |= {name: value if isinstance(value, str) else json.dumps(value) for name, value in other.items()}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}").encode()


def decoded(data: bytes) -> Metadata:
    return Metadata.decode(data, "a_0123456789ab")


@pytest.mark.parametrize("ascii_only", [True, False])
def test_metadata_round_trips(ascii_only: bool) -> None:
    whole = decoded(json.dumps(FIELDS, ensure_ascii=ascii_only).encode())
    assert json.loads(whole.encode()) == FIELDS and decoded(whole.encode()) == whole
    for name, values in VALID.items():
        for value in values:
            metadata = decoded(json.dumps({**FIELDS, name: value}, ensure_ascii=ascii_only).encode())
            assert decoded(metadata.encode()) == metadata
    for name in ("scope", "blob"):
        decoded(in_json({key: value for key, value in FIELDS.items() if key != name}))


@pytest.mark.fault(46)
def test_metadata_with_invalid_field_is_rejected() -> None:
    for data in (
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        in_json(FIELDS).replace(b'"text/plain"', b'"\xed\xa0\x80"'),
    ):
        with pytest.raises(ValueError):
            decoded(data)
    for name, values in INVALID.items():
        for value in values:
            try:
                with pytest.raises(ValueError):
                    decoded(in_json(FIELDS, **{name: value}))
            except BaseException as error:
                raise AssertionError(f"{name}: {str(value)[:60]}") from error
    for name in ("version", "id", "sha256", "size_bytes", "mime_type", "names", "source", "stored"):
        with pytest.raises(ValueError, match="missing"):
            decoded(in_json({key: value for key, value in FIELDS.items() if key != name}))


def test_metadata_file_over_1_mib_is_rejected() -> None:
    data = in_json(FIELDS)
    assert decoded(data + b" " * (1_048_576 - len(data))).id == "a_0123456789ab"
    with pytest.raises(ValueError, match="longer than 1,048,576 bytes"):
        decoded(data + b" " * (1_048_577 - len(data)))


# --- in a store -------------------------------------------------------------------------------------------------------

#: What is in the place of a metadata file; a text is its content.
DAMAGES = {
    "half": '{"version": 1, "id',
    "of another id": {"id": "other_0123456789ab"},
    "huge": 1 << 33,
    "pipe": os.mkfifo,
    "folder": os.mkdir,
}


def damage(meta: Path, kind: str) -> None:
    what = DAMAGES[kind]
    content = meta.read_bytes()
    if isinstance(what, dict):
        meta.write_text(json.dumps(json.loads(content) | what))
    elif isinstance(what, str):
        meta.write_text(what)
    elif isinstance(what, int):
        os.truncate(meta, what)
    else:
        meta.unlink()
        what(meta)  # type: ignore[operator]


@pytest.mark.fault(46)
@pytest.mark.parametrize("kind", DAMAGES)
async def test_unreadable_metadata_affects_only_its_artifact(
    kind: str, store: LocalStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = await store.put_bytes(PNG), await store.put_bytes(PDF)
    meta = root / ".abp/meta" / f"{bad.id}.json"
    damage(meta, kind)
    (root / ".abp/index.sqlite").unlink(missing_ok=True)  # what is listed must be read again
    async with LocalStore(root, retention=Retention.only(ttl_seconds=3600)) as again:
        for _ in range(2):
            with caplog.at_level(logging.WARNING):
                assert await again.list() == [good]
            assert list(await again.gc()) == []
            assert ("metadata", bad.id) in [(one.kind, one.id) for one in (await again.fsck()).problems]
        assert bad.id in caplog.text and await again.get(good.id) == PNG
        if kind not in ("pipe", "folder"):
            with pytest.raises(Corrupt, match=bad.id):
                await again.stat(bad.id)
            assert await again.get((await again.put_bytes(PDF)).id) == PDF  # storing it again repairs it
            damage(meta, kind)
            assert await again.delete(bad.id) and await again.list() == [good]


@pytest.mark.fault(46)
@pytest.mark.parametrize("kind", ["half", "pipe", "folder", "symlink"])
async def test_repair_quarantines_bad_metadata_with_its_content(
    kind: str, store: LocalStore, root: Path, clock: Clock
) -> None:
    good, bad = await store.put_bytes(PNG), await store.put_bytes(PDF, filename="report.pdf")
    meta = root / ".abp/meta" / f"{bad.id}.json"
    if kind == "symlink":
        meta.unlink()
        meta.symlink_to(root / "report.pdf")
    else:
        damage(meta, kind)
    reported = [one.kind for one in (await store.fsck()).problems]
    assert "metadata" in reported and os.path.lexists(meta)  # without being asked, nothing is moved
    (problem,) = [one for one in (await store.fsck(repair=True)).problems if one.kind == "metadata"]
    assert (problem.id, "quarantine" in problem.message) == (bad.id, True)
    assert {path.name for path in (root / ".abp/quarantine").iterdir()} == {f"{bad.id}.json", bad.sha256}
    assert visible(root) == [good.filename]
    assert [one.kind for one in (await store.fsck(repair=True)).problems] == ["symlink"] * (kind == "symlink")
    assert await store.list() == [good] and list(await store.gc()) == []
    again = await store.put_bytes(PDF)
    assert again.id == bad.id and await store.get(again.id) == PDF
    await store.delete(again.id)
    clock.passes(25 * 3600)
    await store.gc()
    left = [] if kind == "half" else [f"{bad.id}.json"]  # what is no file is left to its owner
    assert [path.name for path in (root / ".abp/quarantine").iterdir()] == left
    assert visible(root) == [good.filename] and await store.get(good.id) == PNG


def test_index_row_with_metadata_of_another_id_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    metadata = json.dumps({"version": 1, "id": "EXPORT_0123456789ab"})
    assert metadata_of(metadata, "export_0123456789ab") is None
    assert "a row of the index is skipped" in caplog.text
