"""Pictures for cards, which the server makes."""

import asyncio
import io
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from tests.support.web_client import put_artifact, running
from transports._internal.readers import _reader_process as reader_process
from transports.artifacts import LocalStore, Scope
from transports.surfaces.web import _artifacts as thumbnails


def pdf() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (200, 300), (200, 30, 40)).save(out, "PDF")
    assert len(pypdfium2.PdfDocument(out.getvalue())) == 1
    return out.getvalue()


@pytest.mark.load
async def test_a_picture_is_made_once_by_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    async def run(program: str, data: bytes, limit: int) -> object:
        runs.append(program)
        return await real(program, data, limit)

    real = reader_process.run_reader
    monkeypatch.setattr(thumbnails, "run_reader", run)
    tiff = io.BytesIO()
    Image.new("RGB", (40, 20), (1, 2, 3)).save(tiff, "TIFF")
    async with running(LocalStore(tmp_path)) as web:
        good = await put_artifact(web.store, pdf(), mime_type="application/pdf")
        bad = await put_artifact(web.store, b"%PDF-1.7 no pages", mime_type="application/pdf")
        other = await put_artifact(web.store, tiff.getvalue(), mime_type="image/tiff")
        text = await put_artifact(web.store, b"text")
        hidden = await put_artifact(web.store.scoped(Scope(tenant="other")), pdf(), mime_type="application/pdf")
        answers = await asyncio.gather(*(web.get(f"/artifacts/{good.id}/thumbnail") for _ in range(5)))
        for answer in answers:
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
