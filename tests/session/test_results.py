"""Results of calls over the in-process transport: files, references, metadata, copies, and content that is wrong."""

import hashlib
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.apps import LARGE, PDF, PNG, AtAddress, NotingTransport, answering, files, pdf
from tests.support.resources import ResourceApp
from tests.support.spans import collecting
from transports import BinaryData, BinaryError, MemoryTransport, Result, RoutingPolicy, UsageError
from transports.errors import AddressBlocked, ArtifactNotFound, DownloadFailed, SizeMismatch

# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-2a", "R0-2b", "R0-3b", "R0-4f", "R0-9a", "R0-9b", "R0-12a", "R0-12c")
async def test_a_json_answer_becomes_a_file(app_of: Connect, tmp_path: Path) -> None:
    data = {"html": "<h1>Hé</h1>", "n": [1, 2.5, None, True]}
    async with app_of({"md.html": answering(data)}) as app:
        result = await app.call("md.html")
    (ref,) = result.artifacts.values()
    assert list(result.artifacts) == [""]
    assert result.data == data
    path = Path(ref.path or "")
    assert (path.parent, path.suffix, ref.mime_type) == (tmp_path / "out", ".json", "application/json")
    assert json.loads(path.read_bytes()) == data
    text = json.dumps(data, ensure_ascii=False)
    assert result.summary() == f"{text}\nOutput saved to file: {ref.path}"
    long = {"html": "é" * 5000}
    async with app_of({"md.html": answering(long)}) as app:
        result = await app.call("md.html")
    characters = len(json.dumps(long, ensure_ascii=False, separators=(",", ":")))  # not bytes
    assert result.summary(max_chars=1000).startswith(
        f"Output saved to file: {result.artifact().path}\nSize: {characters} characters"
    )


@pytest.mark.requirement("R0-3a", "R0-5a", "R0-5b", "R0-5c", "R0-6e", "R0-6h", "R1-4g", "R1-14d", "R2-3.2c", "R2-5.1a")
async def test_nested_binary_becomes_reference_and_siblings_become_metadata(app_of: Connect) -> None:
    async with app_of({"export.pdf": answering({"document": pdf(filename="a.pdf"), "pageCount": 12})}) as app:
        result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})
    ref = result.artifacts["document"]
    assert Path(ref.path or "").read_bytes() == PDF
    assert ref.sha256 == hashlib.sha256(PDF).hexdigest()
    assert (ref.filename, ref.mime_type, ref.size_bytes) == ("a.pdf", "application/pdf", len(PDF))
    assert (ref.source["capability"], ref.source["app"], ref.source["verified"]) == ("export.pdf", "memory", True)
    assert result.metadata == {"pageCount": 12}
    assert json.loads(json.dumps(result.data)) == {"document": ref.as_dict(), "pageCount": 12}
    assert result.summary() == (
        f'File saved: {ref.path}\nType: application/pdf\nSize: {len(PDF)} bytes\nMetadata: {{"pageCount":12}}'
    )


@pytest.mark.parametrize(
    ("document", "warning"),
    [
        (pdf(PNG), "declared as application/pdf, but the content is image/png; stored as image/png"),
        ({"content": "data:,", "mimeType": "image/png"}, "declared as image/png, but the content is empty"),
        ({"content": PNG, "mimeType": "png"}, "declared as 'png', which is not a MIME type; stored as image/png"),
    ],
)
async def test_a_wrong_mime_type_is_a_warning(app_of: Connect, document: object, warning: str) -> None:
    async with app_of({"lie": answering({"document": document})}) as app:
        result = await app.call("lie")
    assert result.artifacts["document"].mime_type == "image/png"
    assert result.warnings == (f"document: {warning}",)
    assert result.summary().endswith(f"Warning: document: {warning}")


XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
BINARY_PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
LOST = "which lost some of its bytes; the app must read it as an ArrayBuffer or Blob"


@pytest.mark.parametrize(
    ("content", "mime_type", "name", "warning"),
    [
        (b"", None, "a.pdf", "named as application/pdf, but the content is empty"),
        (b'{"error": 404}', "application/pdf", None, "declared as application/pdf, but the content is JSON; it may be"),
        (b' [ {"n": 1}]', None, "a.xlsx", "sheet, but the content is JSON; it may be an error message"),
        (b"<!DOCTYPE html><p>Sign in", None, "a.pdf", "named as application/pdf, but the content is text/html"),
        (BINARY_PDF, "application/pdf", None, f"(application/pdf) that was decoded as text, {LOST}"),
        (b"PK\x03\x04\x14\x00\xe9", None, "a.xlsx", f"(application/zip) that was decoded as text, {LOST}"),
        (b"\x89PNG\r\n\x1a\n\0", None, None, f"(image/png) that was decoded as text, {LOST}"),
        (b"<!DOCTYPE html><p>Sign in", XLSX, None, f"declared as {XLSX}, but the content is text/html; stored as"),
        (b"<!DOCTYPE html><p>Sign in", "text/csv", None, "declared as text/csv, but the content is text/html"),
        (b"<!DOCTYPE html><p>Sign in", None, "a.csv", "named as text/csv, but the content is text/html"),
        (b"<!DOCTYPE html><p>A page", "text/plain", "a.html", ""),
        (b"<html><table></table>", None, "a.xls", ""),  # Excel opens it
        (b"{}", None, "a.txt", ""),
        (PDF, "application/pdf", "a.pdf", ""),
        (BINARY_PDF + b"\xef\xbf\xbd", "application/pdf", "a.pdf", ""),
    ],
)
async def test_file_that_cannot_be_what_it_is_called_is_a_warning(
    app_of: Connect, content: bytes, mime_type: str | None, name: str | None, warning: str
) -> None:
    """Whether the app answered it, or saved it."""
    if "decoded" in warning:
        # As a Blob that is made of the text of a response.
        content = content.decode(errors="replace").encode()
    transport = NotingTransport({"make": answering({"answered": BinaryData(content, mime_type, filename=name)})})
    transport.outputs = [BinaryData(content + b" ", mime_type, filename=name)] if content else []
    async with app_of(transport) as app:
        result = await app.call("make")
    assert len(result.artifacts) == 1 + len(transport.outputs)
    places = result.artifacts if warning else ()
    assert len(result.warnings) == len(places)
    for place, text in zip(places, result.warnings, strict=True):
        assert text.startswith(f"{place}: ") and warning in text


# --- content that is not what it was declared to be -------------------------------------------------------------------


@pytest.mark.requirement("R5-4a", "R5-4b")
@pytest.mark.parametrize("content", [PDF, LARGE], ids=["small", "behind a handle"])
async def test_content_of_wrong_size_is_not_stored(app_of: Connect, tmp_path: Path, content: bytes) -> None:
    lie = {"content": content, "mimeType": "application/pdf", "size": len(content) + 1}
    transport = NotingTransport({"lie": answering({"document": lie}), "good": answering({"document": pdf()})})
    async with app_of(transport) as app:
        await app.call("good")
        before = files(tmp_path / "out")
        with pytest.raises(SizeMismatch) as caught:
            await app.call("lie")
        assert files(tmp_path / "out") == before
        assert len(transport.released) == (content is LARGE)
        assert transport.saved == []  # a lie is found before a byte has moved
        assert (await app.call("good")).artifacts
    details = caught.value.details
    assert (details["declared"], details["actual"], details["field"]) == (len(content) + 1, len(content), "document")
    assert caught.value.result is not None
    assert caught.value.result.artifacts == {}


@pytest.mark.requirement("R0-8b", "R2-6.5c", "R4-12b")
async def test_one_bad_binary_leaves_others_stored(app_of: Connect) -> None:
    url = "http://bob:hunter2@10.0.0.1/f.pdf?token=s3cret"
    answer = {
        "first": {"content": PNG, "mimeType": "image/png"},
        "bad": {"downloadUrl": url, "mimeType": "application/pdf", "auth": {"type": "bearer", "token": "t0psecret"}},
        "odd": {"content": "####", "mimeType": "application/pdf", "encoding": "base64"},
        "last": {"content": LARGE, "mimeType": "application/x-thing"},
        "note": "kept",
    }
    async with app_of(transport := NotingTransport({"take": answering(answer)})) as app:
        with pytest.raises(AddressBlocked) as caught:
            await app.call("take")
        assert len(transport.released) == 1
    error, result = caught.value, caught.value.result
    assert isinstance(result, Result)
    assert list(result.artifacts) == ["first", "last"]
    assert Path(result.artifacts["last"].path or "").read_bytes() == LARGE
    assert error.details["field"] == "bad"
    assert error.details["also_failed"] == ["odd"]
    assert str(error.details["url"]).startswith("http://10.0.0.1/f.pdf")
    data: Any = result.data
    assert (data["note"], data["bad"]["error"]["code"], data["odd"]["error"]["code"]) == (
        "kept", "BLOCKED_ADDRESS", "INVALID_ENCODING",
    )  # fmt: skip
    everything = json.dumps([error.as_dict(), result.as_dict(), str(error), repr(error), result.summary()])
    assert not [secret for secret in ("hunter2", "s3cret", "t0psecret") if secret in everything]


@pytest.mark.load
@pytest.mark.requirement("R0-8b")
async def test_failed_download_url_reaches_only_the_caller(
    app_of: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    auth = {"type": "query", "token": "t0psecret"}
    answer = {"good": PNG, "bad": {"downloadUrl": "f.pdf?sig=s1gn4ture", "mimeType": "application/pdf", "auth": auth}}
    transport = AtAddress("http://bob:hunter2@127.0.0.1:1/app/", {"take": answering(answer)})
    with collecting() as sent:
        async with app_of(transport, record=tmp_path / "recorded.jsonl", timeout=5) as app:
            with pytest.raises(DownloadFailed) as caught:
                await app.call("take")
        traced = sent.everything()
    error = caught.value
    assert error.download_url == "http://bob:hunter2@127.0.0.1:1/app/f.pdf?sig=s1gn4ture"
    assert error.details["url"] == "http://127.0.0.1:1/app/f.pdf?…"
    shown = [str(error), repr(error), "".join(traceback.format_exception(error)), json.dumps(error.as_dict())]
    shown += [repr(vars(error)), repr(pickle.loads(pickle.dumps(error)).download_url), json.dumps(error.details)]
    shown += [repr(error.result), caplog.text, traced, (tmp_path / "recorded.jsonl").read_text()]
    assert not [word for word in ("hunter2", "s1gn4ture", "t0psecret") for text in shown if word in text]
    with pytest.raises(SizeMismatch) as other:
        async with app_of(MemoryTransport({"take": answering({"file": pdf(size=9)})})) as app:
            await app.call("take")
    assert other.value.download_url is None


@pytest.mark.parametrize(
    ("url", "message", "shown"),
    [
        ("http://[", "bad", None),
        ("blob:http://x/1?s3cret", "no longer there", "blob:http://x/1?…"),  # asked of the transport
    ],
)
async def test_unusable_download_url_raises_typed_error(
    app_of: Connect, url: str, message: str, shown: str | None
) -> None:
    answer = {"good": PNG, "bad": {"downloadUrl": url, "mimeType": "application/pdf"}}
    async with app_of(AtAddress("http://127.0.0.1:1/", {"take": answering(answer)})) as app:
        with pytest.raises(BinaryError, match=message) as caught:
            await app.call("take")
    assert caught.value.details["field"] == "bad"
    assert isinstance(caught.value.result, Result) and list(caught.value.result.artifacts) == ["good"]
    if shown is None:
        assert caught.value.code == "DOWNLOAD_FAILED"
    else:
        assert caught.value.details["url"] == shown


@pytest.mark.parametrize("capability", ["resources.read", "resources.list", "resources.templates", "none"])
async def test_resource_answer_is_only_a_file_when_inline_data_is_off(app_of: Connect, capability: str) -> None:
    policy = RoutingPolicy(inline_data=False)
    async with app_of(ResourceApp({"none": answering({"n": 1})}), routing=policy) as app:
        params = {"uri": "note:///a b?c=d"} if capability == "resources.read" else {}
        result = await app.call(capability, params)
    assert result.data == result.artifacts[""].as_dict()


# --- copies of artifacts ----------------------------------------------------------------------------------------------

EXPORT = {"export": answering({"document": PDF})}


@pytest.mark.parametrize("address", ["memory:", "local"])
async def test_save_copies_from_any_store(app_of: Connect, address: str, tmp_path: Path) -> None:
    async with app_of(EXPORT, store=tmp_path / "out" if address == "local" else address) as app:
        ref = (await app.call("export")).artifacts["document"]
        assert await app.save(ref, tmp_path / "new" / "a.pdf") == tmp_path / "new" / "a.pdf"
        assert await app.save(ref.id, tmp_path / "b.pdf") == tmp_path / "b.pdf"
        with pytest.raises(ArtifactNotFound):
            await app.save("nothing_0123456789ab", tmp_path / "c.pdf")
    assert await app.save(ref, tmp_path / "d.pdf") == tmp_path / "d.pdf"
    assert [(tmp_path / name).read_bytes() for name in ("new/a.pdf", "b.pdf", "d.pdf")] == [PDF] * 3


async def test_reference_bytes_are_read_and_invalid_sources_rejected(app_of: Connect, tmp_path: Path) -> None:
    async with app_of(EXPORT, store="memory:") as app:
        result = await app.call("export")
        ref = result.artifact()
        assert await app.store.get(ref) == await app.store.get(ref.id) == PDF
        assert b"".join([piece async for piece in app.store.open(ref, offset=1, length=3)]) == PDF[1:4]
        wrong: Any = result
        with pytest.raises(UsageError, match=r"an artifact is a reference, such as result"):
            await app.store.get(wrong)
        with pytest.raises(UsageError, match=r"artifact must be a reference, .* not Result"):
            await app.save(wrong, tmp_path / "a.pdf")
        with pytest.raises(UsageError, match="it is a folder; name a file in it"):
            await app.save(ref, f"{tmp_path}/new/")
    assert not [*tmp_path.iterdir()]
