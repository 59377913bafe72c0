"""The JavaScript of apps that the source documents of docs/requirements.md print, run unchanged in a page.

What R1-8 and R1-9 print for postMessage and a WebSocket, the reference app does: ``test_postmessage.py`` and the
contract suite show it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from transports import Browser, Result, Session, connect
from transports.errors import BadEncoding, UrlExpired

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# --- the documents, verbatim ------------------------------------------------------------------------------------------

#: R0-6 "App returns binary data".
EXPORT_FLAT = """
async exportPdf({ html, options }) {
  const pdfBlob = await generatePdf(html, options);
  const pdfBase64 = await blobToBase64(pdfBlob);

  return {
    success: true,
    data: {
      pdf: pdfBase64,           // Base64-encoded
      mimeType: 'application/pdf',
      size: pdfBlob.size
    }
  };
}
"""
#: R0-5 "Nested binary data detection": an answer of export.pdf.
NESTED = """
{
  "document": {
    "content": "JVBERi0xLjQK...",
    "mimeType": "application/pdf",
    "encoding": "base64",
    "size": 145832
  },
  "pageCount": 12
}
"""
#: R0-11 "Wrong - don't do this" and "Correct - return data instead".
WRONG = """
const filePath = '/tmp/output.pdf';
fs.writeFileSync(filePath, pdfBlob);
return { success: true, data: { filePath } };
"""
CORRECT = """
const pdfBase64 = await blobToBase64(pdfBlob);
return {
  success: true,
  data: {
    pdf: pdfBase64,
    mimeType: 'application/pdf',
    size: pdfBlob.size
  }
};
"""
#: R1-4 "Example response with binary data" and R1-5 "Example large file response".
RESPONSE = """
// PDF export response
{
  success: true,
  data: {
    document: {
      content: 'JVBERi0xLjQKJeLjz9MK...',  // Base64-encoded PDF
      mimeType: 'application/pdf',
      encoding: 'base64',
      size: 145832,
      filename: 'export.pdf'
    },
    pageCount: 12
  }
}
"""
LARGE_RESPONSE = """
{
  success: true,
  data: {
    document: {
      downloadUrl: 'https://app.example.com/downloads/abc123',
      mimeType: 'application/pdf',
      size: 52428800,  // 50MB
      filename: 'large-report.pdf',
      expiresAt: 1707500000000  // URL expires in 1 hour
    }
  }
}
"""
#: R1-7 "App-side: return ArrayBuffer or Blob".
HANDLE_PDF_EXPORT = """
async function handlePdfExport(params) {
  const pdfBlob = await generatePdf(params.html, params.options);

  return {
    success: true,
    data: {
      document: {
        content: await pdfBlob.arrayBuffer(),  // ArrayBuffer transfers directly
        mimeType: 'application/pdf',
        size: pdfBlob.size,
        filename: 'export.pdf'
      }
    }
  };
}
"""
#: R1-12 "Capability schema conventions".
CAPABILITY = """
{
  name: 'export.pdf',
  description: 'Generate PDF from HTML',
  outputSchema: {
    type: 'object',
    properties: {
      document: {
        type: 'object',
        description: 'Binary PDF data',
        properties: {
          content: {
            type: 'string',
            description: 'Base64-encoded PDF (or ArrayBuffer for Puppeteer/postMessage)'
          },
          mimeType: { type: 'string', const: 'application/pdf' },
          encoding: { type: 'string', enum: ['base64'] },
          size: { type: 'number' },
          filename: { type: 'string' },
          // OR for large files:
          downloadUrl: { type: 'string', format: 'uri' },
          expiresAt: { type: 'number' }
        },
        required: ['mimeType']
      },
      pageCount: { type: 'number' }
    }
  }
}
"""
#: R1-13 "Example: Size-Based Routing".
HANDLE_EXPORT = """
async function handleExport(params, options) {
  const blob = await generateOutput(params);

  // Use download URL for large files
  if (blob.size > 10 * 1024 * 1024) {  // 10MB
    const url = await uploadToTempStorage(blob);
    return {
      success: true,
      data: {
        output: {
          downloadUrl: url,
          mimeType: blob.type,
          size: blob.size,
          expiresAt: Date.now() + 3600000  // 1 hour
        }
      }
    };
  }

  // Inline for smaller files
  return {
    success: true,
    data: {
      output: {
        content: await blobToBase64(blob),
        mimeType: blob.type,
        encoding: 'base64',
        size: blob.size
      }
    }
  };
}
"""

# --- what they leave out ----------------------------------------------------------------------------------------------

PREPARED = """
const fs = {writeFileSync() {}};
const sized = (bytes, type) => new Blob(['%PDF-1.4\\n', new Uint8Array(bytes - 9).fill(65)], {type});
const generatePdf = async (html) => sized(html.length, 'application/pdf');
const generateOutput = async ({bytes}) => sized(bytes, 'application/pdf');
const blobToBase64 = (blob) => new Promise((resolve) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.split(',')[1]);
  reader.readAsDataURL(blob);
});
const uploadToTempStorage = async (blob) => {
  const answer = await fetch('/upload', {method: 'POST', body: blob});
  return new URL(await answer.text(), location.href).href;
};
const processImage = async ({image, operations}) => {
  const digest = await crypto.subtle.digest('SHA-256', image.content);
  const sha256 = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
  return {success: true, data: {sha256, mimeType: image.mimeType, operations}};
};
const initialized = {
  sessionId: 's', protocolVersion: '0.1', app: {id: 'document', name: 'Document', version: '1'}, capabilities: [],
};
"""
PAGE = f"""<!doctype html><meta charset="utf-8"><title>Document</title><link rel="abp-manifest" href="abp.json"><script>
{PREPARED}
{HANDLE_PDF_EXPORT}
{HANDLE_EXPORT}
const handlers = {{
{EXPORT_FLAT},
  'process.image': processImage,
  'export.pdf': handlePdfExport,
  'export.output': handleExport,
  'export.wrong': async () => {{ const pdfBlob = await generatePdf('x'.repeat(20)); {WRONG} }},
  'export.correct': async () => {{ const pdfBlob = await generatePdf('x'.repeat(20)); {CORRECT} }},
  'example.nested': async () => ({{success: true, data: ({NESTED})}}),
  'example.small': async () => ({RESPONSE}),
  'example.large': async () => ({LARGE_RESPONSE}),
}};
handlers['export.flat'] = handlers.exportPdf;
const names = Object.keys(handlers).filter((name) => name.includes('.'));
const printed = ({CAPABILITY});
const about = names.map((name) => ({{available: true, ...(name === printed.name ? printed : {{name}})}}));
window.abp = {{
  async initialize() {{ return {{...initialized, capabilities: about}}; }},
  async listCapabilities() {{ return about; }},
  async call(name, params, options) {{ return await handlers[name](params, options); }},
  async shutdown() {{}},
}};
</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site() -> AsyncIterator[str]:
    """The address of a server with the documents' pages, which keeps what they upload."""
    kept: dict[str, bytes] = {}

    async def upload(request: web.Request) -> web.Response:
        kept[str(len(kept))] = await request.read()
        return web.Response(text=f"/kept/{len(kept) - 1}")

    async def download(request: web.Request) -> web.Response:
        return web.Response(body=kept[request.match_info["name"]], content_type="application/pdf")

    async def sizes(request: web.Request) -> web.Response:
        return web.json_response([len(one) for one in kept.values()])

    def page(html: str) -> Any:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(text=html, content_type="text/html")

        return answer

    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.get("/", page(PAGE)), web.post("/upload", upload)])
    app.add_routes([web.get("/kept", sizes), web.get("/kept/{name}", download)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(site: str, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    async with connect(site, browser=browser, store=tmp_path_factory.mktemp("documents")) as opened:
        yield opened


def written(size: int) -> bytes:
    """What the documents' functions make, in our stead."""
    return b"%PDF-1.4\n" + b"A" * (size - 9)


def content(result: Result, place: str) -> bytes:
    path = result.artifacts[place].path
    assert path is not None
    return path.read_bytes()


# --- what they give ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-6a", "R0-6e", "R0-6h", "R0-11b", "R1-4a", "R1-7a", "R1-7c")
async def test_documented_exports_become_files(app: Session) -> None:
    flat = await app.call("export.flat", {"html": "x" * 45_832})
    assert content(flat, "pdf") == written(45_832)
    assert flat.summary().splitlines()[1:] == ["Type: application/pdf", "Size: 45832 bytes"]
    made = await app.call("export.pdf", {"html": "x" * 145_832})
    assert content(made, "document") == written(145_832)
    assert made.artifact().filename == "export.pdf"
    assert content(await app.call("export.correct"), "pdf") == written(20)
    wrong = await app.call("export.wrong")
    assert wrong.data == {"filePath": "/tmp/output.pdf"} and [*wrong.artifacts] == [""]


@pytest.mark.requirement("R1-2c", "R1-2d", "R1-6a", "R1-6b", "R1-6c", "R1-13c", "R1-13d", "R1-13f", "R1-14a", "R1-14d")
async def test_documented_output_size_decides_delivery(app: Session, site: str) -> None:
    limit = 10 * 1024 * 1024
    small = await app.call("export.output", {"bytes": limit})
    async with ClientSession() as client, client.get(f"{site}kept") as uploaded:
        assert await uploaded.json() == []
    large = await app.call("export.output", {"bytes": limit + 1})
    async with ClientSession() as client, client.get(f"{site}kept") as uploaded:
        assert await uploaded.json() == [limit + 1]
    for result, size in ((small, limit), (large, limit + 1)):
        assert hashlib.sha256(content(result, "output")).digest() == hashlib.sha256(written(size)).digest()


@pytest.mark.requirement("R0-5a", "R0-5b", "R1-4a", "R1-4g", "R1-5a", "R1-5e", "R1-14b")
async def test_documented_sample_answers_raise_and_store_nothing(app: Session) -> None:
    """Their base64 ends in an ellipsis, and the URL has expired: errors, of which nothing is stored."""
    stored = await app.store.list()
    for name in ("example.nested", "example.small"):
        with pytest.raises(BadEncoding) as broken:
            await app.call(name)
        assert "document" in broken.value.message and "base64" in broken.value.message, broken.value
    with pytest.raises(UrlExpired) as expired:
        await app.call("example.large")
    assert expired.value.download_url == "https://app.example.com/downloads/abc123"
    assert await app.store.list() == stored


@pytest.mark.requirement("R1-12a", "R1-12b", "R1-12c", "R1-12d")
async def test_documented_capability_works_as_printed(app: Session) -> None:
    about = app.capabilities["export.pdf"]
    printed = await app.transport.page.evaluate(f"({CAPABILITY})")  # type: ignore[attr-defined]
    assert {"name": "export.pdf", "description": about.description, "outputSchema": about.output_schema} == printed
    made = await app.call("export.pdf", {"html": "x" * 100})
    assert made.warnings == () and content(made, "document") == written(100)


@pytest.mark.requirement("R1-11a", "R1-11b", "R1-11c")
async def test_documented_image_input_arrives(app: Session) -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    operations = [{"type": "resize", "width": 800}, {"type": "compress", "quality": 80}]
    params = {"image": {"content": image, "mimeType": "image/png"}, "operations": operations}
    result = await app.call("process.image", params)
    sha256 = hashlib.sha256(image).hexdigest()
    assert result.data == {"sha256": sha256, "mimeType": "image/png", "operations": operations}
