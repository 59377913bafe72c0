"""What the web server makes of files that lie, and of a store that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.polyglots import POLYGLOTS
from tests.support.web_client import Web


@pytest.mark.fault(27)
async def test_a_file_that_is_two_things_is_served_as_its_signature_says(web: Web) -> None:
    for data, mime_type, declared in POLYGLOTS:
        ref = await web.store.put_bytes(data, mime_type=declared, filename=f"a.{declared.rpartition('/')[2]}")
        assert (ref.mime_type, ref.source["declared_mime_type"]) == (mime_type, declared)
        assert f"declared as {declared}, but the content is {mime_type}" in str(ref.source["warnings"])
        answer = await web.get(f"/artifacts/{ref.id}")
        assert (answer.headers["content-type"], answer.body) == (mime_type, data)
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script" not in policy
        assert policy.startswith("sandbox;") or mime_type == "application/pdf"
        forced = await web.get(f"/artifacts/{ref.id}?download")
        assert forced.headers["content-disposition"].startswith("attachment;")


@pytest.mark.fault(46)
async def test_a_damaged_store_is_served_but_for_what_is_damaged(
    web: Web, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = tmp_path / "out" / ".abp"
    good, unreadable, missing, spoilt = [await web.store.put_bytes(name) for name in (b"a", b"b", b"c", b"d")]
    (inner / "meta" / f"{unreadable.id}.json").write_text("{")
    (inner / "blobs" / missing.sha256).unlink()
    assert spoilt.path
    spoilt.path.write_bytes(b"D")
    for index in (None, b"", b"no database" * 1000):
        for file in inner.glob("index.sqlite*"):
            file.unlink()
        if index is not None:
            (inner / "index.sqlite").write_bytes(index)
        listed = (await web.get("/artifacts")).json["artifacts"]
        assert {meta["id"] for meta in listed} == {good.id, missing.id, spoilt.id}
        assert (await web.get(f"/artifacts/{good.id}")).body == b"a"
        for ref in (unreadable, missing, spoilt):
            answer = await web.get(f"/artifacts/{ref.id}")
            assert (answer.status, answer.code) == (500, "CORRUPT")
        for ref in (missing, spoilt):
            verified = await web.post(f"/artifacts/{ref.id}/verify")
            assert verified.status == 200 and verified.json["ok"] is False
    assert not [record for record in caplog.records if record.exc_info]
