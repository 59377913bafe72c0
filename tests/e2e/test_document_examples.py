"""The JavaScript of apps that the source documents of docs/requirements.md print, run unchanged: what it answers in a
page, over postMessage and over a WebSocket."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from websockets.asyncio.server import ServerConnection, serve as serve_websocket

from tests.e2e.conftest import Connect
from transports import Browser, PostMessageTransport, Result, connect
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
#: R1-8 "App-side: use transfer list for zero-copy".
POST = """
const arrayBuffer = await blob.arrayBuffer();

window.parent.postMessage({
  type: 'capabilities/call-result',
  id: requestId,
  payload: {
    success: true,
    data: {
      document: {
        content: arrayBuffer,
        mimeType: 'application/pdf',
        size: arrayBuffer.byteLength
      }
    }
  }
}, targetOrigin, [arrayBuffer]);  // Transfer list - zero-copy!
"""
#: R1-9 "App-side: encode as Base64".
SEND = """
const arrayBuffer = await blob.arrayBuffer();
const base64 = btoa(String.fromCharCode(...new Uint8Array(arrayBuffer)));

ws.send(JSON.stringify({
  type: 'capabilities/call-result',
  id: requestId,
  payload: {
    success: true,
    data: {
      document: {
        content: base64,
        mimeType: 'application/pdf',
        encoding: 'base64',
        size: arrayBuffer.byteLength
      }
    }
  }
}));
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
EMBEDDED = f"""<!doctype html><meta charset="utf-8"><title>Document</title><script>
{PREPARED}
const capabilities = [{{name: 'export.pdf', available: true}}];
window.addEventListener('message', async ({{data: {{type, id: requestId, payload}}, origin: targetOrigin}}) => {{
  const reply = (result) =>
    window.parent.postMessage({{type: `${{type}}-result`, id: requestId, payload: result}}, targetOrigin);
  if (type === 'initialize') reply({{...initialized, capabilities}});
  else if (type === 'capabilities/list') reply(capabilities);
  else if (type === 'capabilities/call') {{
    const blob = await generatePdf(payload.params.html);
    {POST}
    window.left = arrayBuffer.byteLength;
  }}
}});
</script>"""


@pytest_asyncio.fixture(loop_scope="session")
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
    app.add_routes([web.get("/", page(PAGE)), web.get("/embedded", page(EMBEDDED)), web.post("/upload", upload)])
    app.add_routes([web.get("/kept", sizes), web.get("/kept/{name}", download)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


def written(size: int) -> bytes:
    """What the documents' functions make, in our stead."""
    return b"%PDF-1.4\n" + b"A" * (size - 9)


def content(result: Result, place: str) -> bytes:
    path = result.artifacts[place].path
    assert path is not None
    return path.read_bytes()


# --- what they give ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-6a", "R0-6e", "R0-6h", "R0-11b", "R1-4a", "R1-7a", "R1-7c")
async def test_documented_exports_become_files(connected: Connect, site: str) -> None:
    async with connected(base=site) as app:
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
async def test_documented_output_size_decides_delivery(connected: Connect, site: str) -> None:
    limit = 10 * 1024 * 1024
    async with connected(base=site) as app:
        small = await app.call("export.output", {"bytes": limit})
        async with ClientSession() as client, client.get(f"{site}kept") as uploaded:
            assert await uploaded.json() == []
        large = await app.call("export.output", {"bytes": limit + 1})
        async with ClientSession() as client, client.get(f"{site}kept") as uploaded:
            assert await uploaded.json() == [limit + 1]
    for result, size in ((small, limit), (large, limit + 1)):
        assert hashlib.sha256(content(result, "output")).digest() == hashlib.sha256(written(size)).digest()


@pytest.mark.requirement("R0-5a", "R0-5b", "R1-4a", "R1-4g", "R1-5a", "R1-5e", "R1-14b")
async def test_documented_sample_answers_raise_and_store_nothing(connected: Connect, site: str) -> None:
    """Their base64 ends in an ellipsis, and the URL has expired: errors, of which nothing is stored."""
    async with connected(base=site) as app:
        for name in ("example.nested", "example.small"):
            with pytest.raises(BadEncoding) as broken:
                await app.call(name)
            assert "document" in broken.value.message and "base64" in broken.value.message, broken.value
        with pytest.raises(UrlExpired) as expired:
            await app.call("example.large")
        assert expired.value.download_url == "https://app.example.com/downloads/abc123"
        assert await app.store.list() == []


@pytest.mark.requirement("R1-12a", "R1-12b", "R1-12c", "R1-12d")
async def test_documented_capability_works_as_printed(connected: Connect, site: str, browser: Browser) -> None:
    async with connected(base=site) as app:
        about = app.capabilities["export.pdf"]
        async with await browser.playwright.new_context() as context:
            printed = await (await context.new_page()).evaluate(f"({CAPABILITY})")
        assert {"name": "export.pdf", "description": about.description, "outputSchema": about.output_schema} == printed
        made = await app.call("export.pdf", {"html": "x" * 100})
        assert made.warnings == () and content(made, "document") == written(100)


@pytest.mark.requirement("R1-11a", "R1-11b", "R1-11c")
async def test_documented_image_input_arrives(connected: Connect, site: str) -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    operations = [{"type": "resize", "width": 800}, {"type": "compress", "quality": 80}]
    async with connected(base=site) as app:
        params = {"image": {"content": image, "mimeType": "image/png"}, "operations": operations}
        result = await app.call("process.image", params)
    sha256 = hashlib.sha256(image).hexdigest()
    assert result.data == {"sha256": sha256, "mimeType": "image/png", "operations": operations}


@pytest.mark.requirement("R1-8a", "R1-8b", "R1-8c")
async def test_a_buffer_is_transferred_over_post_message(site: str, browser: Browser, tmp_path: Path) -> None:
    transport = PostMessageTransport(f"{site}embedded", browser=browser)
    async with connect(f"{site}embedded", transport=transport, store=tmp_path / "out") as app:
        result = await app.call("export.pdf", {"html": "x" * 300_000})
        assert content(result, "document") == written(300_000)
        page = transport.page
        assert page is not None
        (frame,) = [one for one in page.frames if one.url == f"{site}embedded"]
        assert await frame.evaluate("window.left") == 0  # it was moved, not copied


@pytest.mark.requirement("R1-9a", "R1-9b", "R1-13e")
async def test_base64_pdf_arrives_over_websocket(site: str, browser: Browser, tmp_path: Path) -> None:
    async with await browser.playwright.new_context() as context:
        page = await context.new_page()
        await page.goto(site)

        async def serve(socket: ServerConnection) -> None:
            async for message in socket:
                request = json.loads(message)
                kind, capabilities = request["type"], [{"name": "export.pdf", "available": True}]
                payload: object = capabilities
                if kind == "initialize":
                    payload = {**await page.evaluate("initialized"), "capabilities": capabilities}
                if kind == "capabilities/call":
                    sent = await page.evaluate(
                        f"""async ([size, requestId]) => {{
                            const blob = await generatePdf('x'.repeat(size)), sent = [];
                            const ws = {{send: (text) => sent.push(text)}};
                            {SEND}
                            return sent[0];
                        }}""",
                        [request["payload"]["params"]["size"], request["id"]],
                    )
                    await socket.send(sent)
                elif "id" in request:
                    answer = {"type": f"{kind}-result", "id": request["id"], "payload": payload}
                    await socket.send(json.dumps(answer))

        async with serve_websocket(serve, "127.0.0.1", 0) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with connect(url, store=tmp_path / "out") as app:
                result = await app.call("export.pdf", {"size": 50_000})
        assert content(result, "document") == written(50_000)
