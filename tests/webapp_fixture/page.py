"""A page of the reference app, driven by Playwright alone: helpers of the tests here."""

import base64
import io
from dataclasses import dataclass
from typing import Any

from PIL import Image
from playwright.async_api import Browser, Page

# Everything binary in an answer becomes {"$bytes": base64, "kind": ...}, so that it crosses into Python whole.
PACK = """
async function pack(value) {
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  const text = async (blob) => (await new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  })).split(',')[1] ?? '';
  if (value instanceof Blob) return { $bytes: await text(value), kind };
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return { $bytes: await text(new Blob([value])), kind };
  if (Array.isArray(value)) return Promise.all(value.map(pack));
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value).map(async ([name, inner]) => [name, await pack(inner)]);
  return Object.fromEntries(await Promise.all(entries));
}
"""
CALL = f"async ([name, params, options]) => {{ {PACK} return pack(await abp.call(name, params, options)); }}"
INITIALIZE = """() => abp.initialize({
  agent: { name: 'test', version: '1' }, protocolVersion: '0.1',
  features: { notifications: true, progress: true, elicitation: true },
})"""
PATTERN = bytes(i % 251 for i in range(1024))
CSV = "Month,Online,Shop\nJan,120,80\nFeb,150,\nMar,-20,130\n"


@dataclass
class App:
    """A page with an initialised app."""

    page: Page

    async def answer(self, name: str, params: Any = None, **options: Any) -> Any:
        return await self.page.evaluate(CALL, [name, params or {}, options])

    async def data(self, name: str, **params: Any) -> Any:
        answer = await self.answer(name, params)
        assert answer["success"], answer
        return answer["data"]

    async def error(self, name: str, **params: Any) -> Any:
        answer = await self.answer(name, params)
        assert not answer["success"], answer
        return answer["error"]


def content(binary: dict[str, Any]) -> bytes:
    """The bytes of a packed BinaryData; its declared size must be true."""
    held = binary["content"]
    if isinstance(held, dict):
        data = base64.b64decode(held["$bytes"], validate=True)
    else:
        data = base64.b64decode(held, validate=True) if binary["encoding"] == "base64" else held.encode()
    assert len(data) == binary["size"]
    return data


def png_size(binary: dict[str, Any]) -> tuple[int, int]:
    image = Image.open(io.BytesIO(content(binary)))
    image.load()
    assert image.format is not None and Image.MIME[image.format] == binary["mimeType"]
    return image.size


def picture(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "#2f6fdb").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


async def open_app(browser: Browser, url: str) -> App:
    page = await browser.new_page()
    page.set_default_timeout(5000)
    await page.goto(url)
    await page.evaluate(INITIALIZE)
    return App(page)
