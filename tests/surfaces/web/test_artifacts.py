"""Artifacts over HTTP: content, ranges, conditions, names, lists, uploads."""

import asyncio
import gzip
import hashlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, unquote

import aiohttp
import pypdfium2
import pytest
from PIL import Image

from tests.support.eventually import eventually
from tests.support.web_client import Web, put_artifact, running
from transports._internal import readers
from transports.artifacts import ArtifactStore, LocalStore, MemoryStore, Retention, Scope, open_store
from transports.surfaces.web import _artifacts as thumbnails
from transports.surfaces.web._access import Limits

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


# --- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault(27)
@pytest.mark.requirement("R2-1.3b", "R2-5.6a", "R2-6.3a")
async def test_artifact_is_served_with_content_and_headers(web: Web) -> None:
    ref = await put_artifact(web.store)
    answer = await web.get(f"/artifacts/{ref.id}")
    assert (answer.status, answer.body) == (200, b"0123456789")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-length"] == "10" and answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"] == f'"{ref.sha256}"'
    assert answer.headers["content-disposition"] == 'inline; filename="digits.txt"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox;") and "default-src 'none'" in policy and "script" not in policy


RANGES: list[tuple[str, int, bytes, str | None]] = [
    ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
    ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
    ("bytes=-3", 206, b"789", "bytes 7-9/10"),
    ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
    ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
    ("bytes=0-99999999999999999", 206, b"0123456789", "bytes 0-9/10"),
    ("bytes=10-", 416, b"", "bytes */10"),
    ("bytes=-0", 416, b"", "bytes */10"),
    ("bytes=3-2", 200, b"0123456789", None),
    ("bytes=a-b", 200, b"0123456789", None),
    ("bytes=-", 200, b"0123456789", None),
    ("bytes=0-1,3-4", 200, b"0123456789", None),
    ("bytes=--1", 200, b"0123456789", None),
    ("bytes=0-9999999999999999999999999", 200, b"0123456789", None),
    ("lines=1-2", 200, b"0123456789", None),
    ("bytes=１-２", 200, b"0123456789", None),
]


@pytest.mark.fault(49)
async def test_ranges_are_served_of_get_alone(web: Web) -> None:
    ref = await put_artifact(web.store)
    for header, *expected in RANGES:
        answer = await web.raw(f"GET /artifacts/{ref.id} HTTP/1.1\nHost: HOST\nRange: {header}")
        assert [answer.status, answer.body, answer.headers.get("content-range")] == expected, header
    empty = await put_artifact(web.store, b"")
    answer = await web.get(f"/artifacts/{empty.id}")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
    assert (await web.get(f"/artifacts/{empty.id}", headers={"Range": "bytes=0-"})).status == 416

    rest = f"/artifacts/{ref.id} HTTP/1.1\nHost: HOST\nAccept: */*"
    got = await web.raw(f"GET {rest}")
    for header in ("", "\nRange: bytes=2-4", "\nRange: bytes=99-"):
        head = await web.raw(f"HEAD {rest}{header}")
        assert head.status == got.status and head.body == b"" != got.body
        assert {**head.headers, "date": ""} == {**got.headers, "date": ""}


async def test_conditional_requests_are_honoured(web: Web) -> None:
    ref = await put_artifact(web.store)
    path, tag, long_ago = f"/artifacts/{ref.id}", f'"{ref.sha256}"', "Thu, 01 Jan 1970 00:00:00 GMT"
    modified = (await web.get(path)).headers["last-modified"]

    async def status(**headers: str) -> int:
        return (await web.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})).status

    assert await status(If_None_Match=tag) == await status(If_None_Match=f'"x", W/{tag}') == 304
    assert await status(If_None_Match="*") == await status(If_Modified_Since=modified) == 304
    assert await status(If_None_Match='"other"', If_Modified_Since=modified) == 200  # the tag counts before the date
    assert await status(If_Modified_Since=long_ago) == 200
    assert await status(If_Modified_Since="yesterday, or so") == 200
    assert await status(If_Range=tag, Range="bytes=0-1") == await status(If_Range=modified, Range="bytes=0-1") == 206
    assert await status(If_Range='"other"', Range="bytes=0-1") == 200
    assert await status(If_Range=f"W/{tag}", Range="bytes=0-1") == 200  # only a strong comparison counts
    assert await status(If_Match=tag) == await status(If_Match=f'"x", {tag}') == await status(If_Match="*") == 200
    assert await status(If_Match='"other"') == await status(If_Match=f"W/{tag}") == 412
    assert await status(If_Unmodified_Since=modified) == await status(If_Match=tag, If_Unmodified_Since=long_ago) == 200
    assert await status(If_Unmodified_Since=long_ago) == 412
    unchanged = await web.get(path, headers={"If-None-Match": tag})
    assert unchanged.body == b"" and unchanged.headers["etag"] == tag


KINDS = {
    "image/png": "inline",
    "application/pdf": "inline",
    "video/mp4": "inline",
    "text/plain": "inline",
    "image/svg+xml": "attachment",
    "text/html": "attachment",
    "application/xhtml+xml": "attachment",
    "application/xml": "attachment",
    "text/javascript": "attachment",
    "application/octet-stream": "attachment",
}


@pytest.mark.fault(27)
async def test_only_harmless_types_are_served_inline(web: Web) -> None:
    for kind, shown in KINDS.items():
        start = b"<script>alert(1)</script>" if "ml" in kind or "script" in kind else b"%PDF-1.7 x"
        ref = await put_artifact(web.store, start + kind.encode(), mime_type=kind, filename="a.bin")
        answer = await web.get(f"/artifacts/{ref.id}")
        content_type = answer.headers["content-type"].partition(";")[0]
        disposition = answer.headers["content-disposition"]
        assert disposition.startswith(shown if content_type == kind else "inline"), (kind, answer.headers)
        has_sandbox = "sandbox" in answer.headers["content-security-policy"]
        assert has_sandbox == (content_type != "application/pdf"), kind
        forced = await web.get(f"/artifacts/{ref.id}?download")
        assert forced.headers["content-disposition"].startswith("attachment;"), kind


#: Names of files, and the plain one in the header, if one is expected.
NAMES = {
    'quo"te.txt': "quote.txt",
    "line\r\nSet-Cookie: a=b.txt": None,
    "../../etc/passwd": None,
    "invoice\u202etxt.exe": None,
    "Übersicht 漢字.txt": "_bersicht __.txt",
    "100%41.txt": "100_41.txt",
    "semi;colon=1.txt": "semi;colon=1.txt",
    "back\\slash.txt": "slash.txt",
    ".bashrc": None,
}


async def test_file_names_in_headers_are_safe() -> None:
    async with running(MemoryStore()) as web:  # the header does not rely on the store's own care
        for name, plain in NAMES.items():
            ref = await put_artifact(web.store, name.encode(), filename=name)
            answer = await web.raw(f"GET /artifacts/{ref.id} HTTP/1.1\nHost: HOST")
            header = answer.headers["content-disposition"]
            assert answer.status == 200 and "set-cookie" not in answer.headers, name
            assert all(" " <= letter <= "~" for letter in header), name
            quoted = header.split('"')
            assert len(quoted) == 3 and not set(quoted[1]) & set('"\\/\r\n%'), name
            if plain:
                assert quoted[1] == plain
            if "filename*=" in header:
                encoded = header.partition("filename*=UTF-8''")[2]
                assert unquote(encoded) == ref.filename, name
                assert quote(unquote(encoded), safe="!#$&+-.^_`|~") == encoded, name
            assert "/" not in ref.filename and "\u202e" not in ref.filename, name


@pytest.mark.fault(47)
async def test_damaged_content_is_never_served_completely(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    small, large = await put_artifact(store), await store.put_bytes(bytes(1 << 20))
    async with running(store) as web:
        for ref in (small, large):
            path = Path(ref.path or "")
            path.chmod(0o600)
            with path.open("r+b") as file:
                file.seek(5)
                file.write(b"\xff")
        answer = await web.get(f"/artifacts/{small.id}")
        assert (answer.status, answer.code) == (500, "CORRUPT")
        with pytest.raises(aiohttp.ClientPayloadError):  # the connection breaks off before the end
            await web.get(f"/artifacts/{large.id}")
        assert (await web.get("/metrics")).body.count(b'abp_content_broken_off_total{reason="CORRUPT"} 1') == 1


# --- what there is ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-6.3b", "R4-4d")
async def test_artifact_meta_endpoint_returns_all_fields(web: Web) -> None:
    ref = await put_artifact(web.store, meta={"capability": "a.b", "app": "App", "call": "c-1"}, namespace="a.b")
    meta = (await web.get(f"/artifacts/{ref.id}/meta")).json
    assert meta == {
        "id": ref.id, "uri": ref.uri, "filename": "digits.txt", "mime_type": "text/plain", "size_bytes": 10,
        "sha256": ref.sha256, "created": ref.source["created"], "session": None, "capability": "a.b", "app": "App",
        "call": "c-1", "evidence": None, "preview": "text", "url": f"/artifacts/{ref.id}", "source": dict(ref.source),
        "scope": {}, "run": None,
    }  # fmt: skip


async def test_artifact_list_supports_filters_and_pages(web: Web) -> None:
    for n in range(7):
        store = web.store.scoped(Scope(session="one" if n % 2 else "two"))
        await put_artifact(store, b"%d" % n, filename=f"File {n}.txt", meta={"capability": f"cap.{n % 3}"})
    await put_artifact(web.store, PNG, mime_type="image/png", filename="Picture.png")

    async def names(query: str) -> list[str]:
        answer = await web.get(f"/artifacts{query}")
        assert answer.status == 200 and len(answer.json["artifacts"]) == answer.json["total"]
        return [meta["filename"] for meta in answer.json["artifacts"]]

    assert await names("") == ["Picture.png", *(f"File {n}.txt" for n in (6, 5, 4, 3, 2, 1, 0))]
    assert await names("?capability=cap.1") == ["File 4.txt", "File 1.txt"]
    assert await names("?type=image/") == ["Picture.png"]
    assert await names("?session=one&q=FILE") == ["File 5.txt", "File 3.txt", "File 1.txt"]
    assert await names("?session=nobody") == [] == await names("?q=nowhere")
    assert await names("?text=3") == ["File 3.txt"]
    seen, after, pages = [], "", 0
    while True:
        answer = (await web.get(f"/artifacts?limit=3{after}")).json
        seen += [meta["filename"] for meta in answer["artifacts"]]
        pages += 1
        assert answer["total"] == 8
        if pages == 1:  # what goes meanwhile, also the very one where the page ended, disturbs nobody
            await web.store.delete(answer["artifacts"][-1]["id"])
            answer["total"] -= 1
        if answer["next"] is None:
            break
        after = f"&after={quote(answer['next'])}"
        if pages == 1:
            await put_artifact(web.store, b"new", filename="new.txt")
    assert pages == 3 and seen == ["Picture.png", *(f"File {n}.txt" for n in (6, 5, 4, 3, 2, 1, 0))]
    for limit in ("0", "-1", "x", "1e3"):
        assert (await web.get(f"/artifacts?limit={limit}")).status == 400


async def test_delete_and_verify(web: Web) -> None:
    ref = await put_artifact(web.store)
    verified = await web.post(f"/artifacts/{ref.id}/verify")
    assert verified.json == {"ok": True, "sha256": ref.sha256, "size_bytes": 10}
    path = Path(ref.path or "")
    path.chmod(0o600)
    path.write_bytes(b"012345678X")
    assert (await web.post(f"/artifacts/{ref.id}/verify")).json["ok"] is False
    assert (await web.ask("DELETE", f"/artifacts/{ref.id}")).status == 204
    for method, rest in (("DELETE", ""), ("GET", ""), ("GET", "/meta"), ("POST", "/verify"), ("POST", "/link")):
        answer = await web.ask(method, f"/artifacts/{ref.id}{rest}")
        assert (answer.status, answer.code) == (404, "ARTIFACT_NOT_FOUND"), method + rest


@pytest.mark.fault(49)
async def test_path_traversal_and_unknown_routes_are_rejected(web: Web) -> None:
    await put_artifact(web.store)
    for path in (
        "/artifacts/..%2f..%2fetc%2fpasswd",
        "/artifacts/../../etc/passwd",
        "/artifacts/%2e%2e",
        "/assets/..%2fserver.py",
        "/assets/../server.py",
        "/assets/%2e%2e/%2e%2e/server.py",
        "/assets/%00",
        "/assets//etc/passwd",
        "/artifacts/%00_000000000000",
        "/artifacts/.abp",
        "//etc/passwd",
    ):
        answer = await web.raw(f"GET {path} HTTP/1.1\nHost: HOST")
        assert answer.status in (400, 404) and b"root:" not in answer.body and b"import" not in answer.body, path
    missing = await web.get("/nowhere")
    assert (missing.status, missing.code) == (404, "INVALID_PARAMS")
    wrong = await web.ask("PATCH", "/artifacts")
    assert wrong.status == 405 and "GET" in wrong.headers["allow"]


@pytest.mark.fault(45)
async def test_download_finishes_after_artifact_is_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out", retention=Retention(max_artifacts_per_session=1))
    ref = await store.put_bytes(bytes(range(256)) * (40 << 10))  # more than any buffer between us holds
    async with running(store) as web:
        headers = {"Authorization": f"Bearer {web.token}"}
        async with aiohttp.request("GET", f"{web.served.url}artifacts/{ref.id}", headers=headers) as answer:
            first = await answer.content.readexactly(10)
            assert (await web.ask("DELETE", f"/artifacts/{ref.id}")).status == 204
            assert (await web.get(f"/artifacts/{ref.id}")).status == 404
            rest = await answer.read()
    assert hashlib.sha256(first + rest).hexdigest() == ref.sha256


@pytest.mark.load
@pytest.mark.fault(49)
async def test_client_that_stops_reading_is_dropped(store: ArtifactStore) -> None:
    ref = await store.put_bytes(bytes(30 << 20))
    async with running(store, limits=Limits(piece_timeout=0.3)) as web:
        _, writer = await asyncio.open_connection(*web.netloc.rsplit(":", 1), limit=1 << 16)
        access = f"Authorization: Bearer {web.token}"
        writer.write(f"GET /artifacts/{ref.id} HTTP/1.1\r\nHost: {web.netloc}\r\n{access}\r\n\r\n".encode())

        async def is_broken_off() -> bool:
            return b'abp_content_broken_off_total{reason="SLOW"} 1' in (await web.get("/metrics")).body

        await eventually(is_broken_off, pause=0.1)
        writer.close()


# --- uploads ----------------------------------------------------------------------------------------------------------


async def test_raw_uploads_are_stored_with_cleaned_names(web: Web) -> None:
    answer = await web.post("/artifacts?filename=..%2F..%2Fa.png", data=PNG, headers={"Content-Type": "text/plain"})
    assert answer.status == 201
    (meta,) = answer.json["artifacts"]
    assert (meta["filename"], meta["mime_type"]) == ("a.png", "image/png")  # by its content, not as declared
    assert await web.store.get(meta["id"]) == PNG
    disposition = "attachment; filename=Uber.txt; filename*=UTF-8''%C3%9Cber.txt"
    header = {"Content-Disposition": disposition, "Content-Type": "text/plain"}
    (meta,) = (await web.post("/artifacts", data=b"hi", headers=header)).json["artifacts"]
    assert meta["filename"] == "Über.txt"


def form(name: str, *sizes: int) -> aiohttp.FormData:
    data = aiohttp.FormData()
    for n, size in enumerate(sizes):
        data.add_field(name, bytes([65 + n]) * size, filename=f"f{n}.txt", content_type="text/plain")
    return data


@pytest.mark.requirement("R4-4a", "R4-15c")
async def test_upload_limits_are_enforced() -> None:
    async def unsized() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield bytes(10_000)

    text = {"Content-Type": "text/plain"}
    uploads: tuple[tuple[object, dict[str, str], int], ...] = (
        (bytes(400_000), text, 201),
        (bytes(400_001), text, 413),
        (bytes(900_000), text, 413),  # beyond the limit of the store, too
        (unsized(), text, 413),
        (b"x", {"Content-Type": "text/html"}, 415),
        (b"x", {"Content-Type": "nonsense"}, 415),
        (gzip.compress(bytes(1000)), {**text, "Content-Encoding": "gzip"}, 415),
        (form("file", *[300_000] * 3), {}, 201),  # together more than one may be
        (form("file", *[1] * 101), {}, 413),
        (form("other", 1), {}, 422),
        (b"abc", {"Content-Type": "multipart/form-data; boundary=x"}, 400),
        (b"abc", {"Content-Type": "multipart/form-data"}, 400),
    )
    store = open_store("memory:", max_bytes=500_000)
    async with running(store, max_upload_bytes=400_000, upload_types="image/*, text/plain") as web:
        for n, (data, headers, status) in enumerate(uploads):
            answer = await web.post("/artifacts", data=data, headers=headers)
            assert answer.status == status, (n, answer)
        assert (await web.get("/artifacts")).json["total"] == 1 + 3 + 100  # the first files of a form stay stored
        uploaded = (await web.post("/artifacts", data=form("file", 9, 99, 999))).json["artifacts"]
        assert [(meta["filename"][:2], meta["size_bytes"]) for meta in uploaded] == [("f0", 9), ("f1", 99), ("f2", 999)]
        assert await web.store.get(uploaded[1]["id"]) == b"B" * 99


async def test_an_aborted_upload_leaves_nothing(web: Web, tmp_path: Path) -> None:
    size = 3 << 19  # more than is collected before a file is made of it
    for head in (f"Content-Length: {2 * size}", "Transfer-Encoding: chunked"):
        _, writer = await asyncio.open_connection(*web.netloc.rsplit(":", 1))
        access = f"Authorization: Bearer {web.token}"
        start = f"POST /artifacts HTTP/1.1\r\nHost: {web.netloc}\r\n{access}\r\n{head}\r\n\r\n"
        writer.write(start.encode() + b"%x\r\n" % (2 * size) + b"x" * size)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    staging = tmp_path / "out" / ".abp" / "staging"
    await eventually(lambda: staging.is_dir() and not any(staging.iterdir()))
    assert (await web.get("/artifacts")).json["total"] == 0


# --- an object store --------------------------------------------------------------------------------------------------


async def test_object_store_is_served(memory_bucket: str) -> None:
    store = open_store(memory_bucket)
    data = bytes(range(256)) * 4096
    ref = await put_artifact(store, data, filename="big.bin", mime_type="application/octet-stream")
    async with running(store) as web:
        whole = await web.get(f"/artifacts/{ref.id}")
        assert hashlib.sha256(whole.body).hexdigest() == ref.sha256
        part = await web.get(f"/artifacts/{ref.id}", headers={"Range": "bytes=1000-1999"})
        assert (part.status, part.body) == (206, data[1000:2000])
        async with web.listen() as events:
            uploaded = await web.post("/artifacts?filename=n.txt", data=b"n", headers={"Content-Type": "text/plain"})
            (meta,) = uploaded.json["artifacts"]
            assert (await events.next())[1:] == ("artifact_stored", meta)
            await open_store(memory_bucket).delete(ref.id)  # by somebody else
            assert (await events.next())[1:] == ("artifact_removed", {"id": ref.id})
        assert (await web.get("/artifacts")).json["total"] == 1


# --- hostile files and a damaged store --------------------------------------------------------------------------------


PAGE = b"<!doctype html><script>window.ran=1;document.title='ran'</script>"


def gif_and_script() -> bytes:
    """A picture whose width begins a comment of JavaScript: ``GIF89a/*…*/=1;…``."""
    size, palette = b"/*" + b"\x01\x00", b"\x80\x00\x00" + bytes(6)
    frame = b"," + bytes(4) + b"\x01\x00\x01\x00\x00" + b"\x02\x02L\x01\x00"
    return b"GIF89a" + size + palette + frame + b";*/=1;window.ran=1;"


def pdf_and_page() -> bytes:
    """A document with a page of HTML in a comment."""
    written = io.BytesIO()
    Image.new("RGB", (40, 40), "red").save(written, "PDF")
    head, _, rest = written.getvalue().partition(b"\n")
    return head + b"\n%" + PAGE + b"\n" + rest


def png_and_zip() -> bytes:
    """A picture with an archive behind it, which is read from its end."""
    written = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(written, "PNG")
    with zipfile.ZipFile(written, "a") as archive:
        archive.writestr("page.html", PAGE)
    return written.getvalue()


#: Harmless by its signature, the type of that, and what the file is as well.
POLYGLOTS = [
    (gif_and_script(), "image/gif", "text/javascript"),
    (pdf_and_page(), "application/pdf", "text/html"),
    (png_and_zip(), "image/png", "application/zip"),
]


@pytest.mark.fault(27)
async def test_polyglot_file_is_served_by_its_signature(web: Web) -> None:
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
async def test_damaged_store_serves_intact_artifacts(
    web: Web, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = tmp_path / "out" / ".abp"
    good, unreadable, missing, spoilt = [await web.store.put_bytes(name) for name in (b"a", b"b", b"c", b"d")]
    (inner / "meta" / f"{unreadable.id}.json").write_text("{")
    (inner / "blobs" / missing.sha256).unlink()
    assert spoilt.path
    spoilt.path.write_bytes(b"D")
    for file in inner.glob("index.sqlite*"):
        file.unlink()
    (inner / "index.sqlite").write_bytes(b"no database" * 1000)
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


# --- thumbnails ------------------------------------------------------------------------------------------------------


def pdf() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (200, 300), (200, 30, 40)).save(out, "PDF")
    assert len(pypdfium2.PdfDocument(out.getvalue())) == 1
    return out.getvalue()


@pytest.mark.load
async def test_thumbnail_is_made_once_in_separate_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    async def run(program: str, data: bytes, limit: int) -> object:
        runs.append(program)
        return await real(program, data, limit)

    real = readers.run_reader
    monkeypatch.setattr(thumbnails, "run_reader", run)
    tiff = io.BytesIO()
    Image.new("RGB", (40, 20), (1, 2, 3)).save(tiff, "TIFF")
    async with running(LocalStore(tmp_path)) as web:
        good = await put_artifact(web.store, pdf(), mime_type="application/pdf")
        bad = await put_artifact(web.store, b"%PDF-1.7 no pages", mime_type="application/pdf")
        other = await put_artifact(web.store, tiff.getvalue(), mime_type="image/tiff")
        text = await put_artifact(web.store, b"text")
        hidden = await put_artifact(web.store.scoped(Scope(tenant="other")), pdf(), mime_type="application/pdf")
        for _ in range(2):
            answer = await web.get(f"/artifacts/{good.id}/thumbnail")
            assert answer.status == 200 and answer.headers["content-type"] == "image/png"
            assert answer.headers["cache-control"] == "private, max-age=86400"
            picture = Image.open(io.BytesIO(answer.body))
            assert picture.size == (480, 720) and picture.convert("RGB").tobytes()[0] > 150
        assert runs == ["pdf_page"]
        assert Image.open(io.BytesIO((await web.get(f"/artifacts/{other.id}/thumbnail")).body)).size == (40, 20)
        for ref in (bad, text, bad):
            assert (await web.get(f"/artifacts/{ref.id}/thumbnail")).status == 404
        assert runs == ["pdf_page", "thumbnail", "pdf_page"]
        assert (await web.with_token("x" * 20).get(f"/artifacts/{hidden.id}/thumbnail")).status == 401
