"""Handlers of the capabilities over a socket: those of the page that need no page. Bytes travel as base64, text as
UTF-8."""

import array
import asyncio
import base64
import copy
import gzip
import html
import io
import math
import re
import sys
import time
import wave
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from webapp_fixture.binarydata import (
    OCTETS,
    download_address,
    filename_for,
    generated_base64,
    read_binary,
    wrap,
    wrap_text,
)
from webapp_fixture.calls import Capability, Context, Handler, Json, Record
from webapp_fixture.csvtext import csv_to_items, encode, format_csv
from webapp_fixture.definitions import capabilities
from webapp_fixture.errors import AbpError, Cancelled
from webapp_fixture.generate import digest
from webapp_fixture.pdf import TextOf, make_pdf
from webapp_fixture.state import State

MEGABYTE = 1 << 20
MAX_INLINE = 256 * MEGABYTE
SAMPLES = (
    ("welcome.md", "text/markdown", "# Welcome\n\nDrop files here, or make some with the tools.\n"),
    ("sales.csv", "text/csv", "Month,Online,Shop\nJan,120,80\nFeb,150,95\n"),
)
WORD = re.compile(r"[^\W_](?:[^\W_]|['’-])*")
STYLE = """
  body { font: 16px/1.6 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; color: #1f2430; }
  table { border-collapse: collapse; } th, td { border: 1px solid #cdd2db; padding: .3rem .6rem; }
  pre { background: #f3f4f7; padding: .8rem; overflow: auto; } code { font-family: ui-monospace, monospace; }
  blockquote { border-left: 3px solid #cdd2db; margin-left: 0; padding-left: 1rem; color: #555c6b; }
  img { max-width: 100%; }"""
DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def sync(function: Callable[[Json], Any]) -> Handler:
    """Return a handler for a function that needs only its parameters."""

    async def handler(params: Json, _context: Context) -> Any:
        return function(params)

    return handler


def render_markdown(markdown: str, title: str | None) -> Json:
    """Render Markdown as ``{html, title, words}``. The title is that of the first heading unless one is given."""
    from markdown_it import MarkdownIt  # late: other capabilities need not wait for it

    rendered = MarkdownIt("js-default").render(markdown)
    seen = TextOf(rendered)
    if title is None:
        title = seen.first_heading() or "Untitled"
    return {"html": rendered, "title": title, "words": len(WORD.findall(seen.content))}


def markdown_to_html(params: Json) -> Json:
    rendered = render_markdown(params["markdown"], params.get("title"))
    return {**rendered, "html": wrap_text(rendered["html"], "text/html", filename_for(rendered["title"], "html"))}


def export_html(params: Json) -> Json:
    """Return a complete HTML document from Markdown or from an HTML fragment."""
    markdown, fragment = params.get("markdown"), params.get("html")
    if (markdown is None) == (fragment is None):
        raise AbpError("MISSING_PARAM", "give either markdown or html", details={"param": "markdown"})
    title = params.get("title")
    if markdown is not None:
        rendered = render_markdown(markdown, title)
        content, title = rendered["html"], rendered["title"]
    else:
        content = str(fragment)
        if title is None:
            title = "Untitled"
    is_complete = re.match(r"\s*(<!doctype|<html)", content, re.IGNORECASE)
    if not is_complete:
        content = DOCUMENT.format(title=html.escape(title), style=STYLE, body=content)
    return {"document": wrap_text(content, "text/html", filename_for(title, "html"))}


def export_pdf(params: Json) -> Json:
    """Return the text of some HTML as a PDF. The page has no PDF of its own: there the client prints it."""
    seen = TextOf(params["html"])
    options = params.get("options", {})
    heading = seen.first_heading(("h1", "h2", "h3")).strip()
    title = params.get("title", seen.title or heading or "Document")
    pdf = make_pdf(seen.text, title, options.get("pageSize", "a4"), options.get("landscape", False))
    return {"rendered": True, "title": title, "document": wrap(pdf, "application/pdf", filename_for(title, "pdf"))}


def archive_gzip(params: Json) -> Json:
    original = encode(params["text"])
    archive = wrap(gzip.compress(original, mtime=0), "application/gzip", "text.txt.gz")
    return {"archive": archive, "originalSize": len(original)}


def data_csv(params: Json) -> Json:
    """Return rows as CSV, byte for byte what the page makes."""
    rows = params["rows"]
    return {"file": wrap_text(format_csv(rows), "text/csv", "data.csv"), "rows": len(rows)}


def data_json(params: Json) -> Json:
    """Return CSV with a header line as objects."""
    items = csv_to_items(params["csv"])
    return {"items": items, "count": len(items)}


def audio_tone(params: Json) -> Json:
    """Return a sine tone as WAV, with a short fade at both ends."""
    frequency, seconds, rate = params.get("frequency", 440), params.get("seconds", 1), params.get("sampleRate", 44100)
    length = round(seconds * rate)
    samples_of_fade = min(0.02, seconds / 4) * rate
    step = 2 * math.pi * frequency / rate
    amplitude = 0.8 * 0x7FFF  # of the largest 16-bit number
    samples = array.array("h", bytes(2 * length))
    for sample in range(length):
        volume = min(1.0, sample / samples_of_fade, (length - sample) / samples_of_fade)
        samples[sample] = int(amplitude * volume * math.sin(step * sample))
    if sys.byteorder == "big":
        samples.byteswap()
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    audio = wrap(out.getvalue(), "audio/wav", f"tone-{round(frequency)}hz.wav")
    return {"audio": audio, "duration": length / rate}


def file_digest(params: Json) -> Json:
    read = read_binary(params["file"], "file")
    return {"size": len(read.data), "sha256": read.sha256, "received": read.received}


def image_info(params: Json) -> Json:
    """Return width and height of a PNG. Other formats are refused; the page reads those too."""
    read = read_binary(params["image"], "image")
    if read.data[:8] != b"\x89PNG\r\n\x1a\n" or read.data[12:16] != b"IHDR" or len(read.data) < 24:
        raise AbpError("INVALID_PARAMS", f"image.content ({len(read.data)} bytes) is not a PNG image")
    width, height = (int.from_bytes(read.data[offset : offset + 4], "big") for offset in (16, 20))
    return {"width": width, "height": height, "size": len(read.data), "sha256": read.sha256, "received": read.received}


def file_generate(state: State) -> Handler:
    """Return the handler that makes files of known bytes: inline as base64, or as a download."""

    async def handler(params: Json, _context: Context) -> Json:
        if ("bytes" in params) == ("megabytes" in params):
            raise AbpError("MISSING_PARAM", "give either bytes or megabytes", details={"param": "bytes"})
        if "bytes" in params:
            size = int(params["bytes"])
        else:
            size = math.floor(params["megabytes"] * MEGABYTE + 0.5)  # as JavaScript rounds
        seed, form = int(params.get("seed", 0)), params.get("as", "base64")
        filename, mime_type = params.get("filename", "generated.bin"), params.get("mimeType", OCTETS)
        if form == "auto":
            form = "base64"
            if size > 10 * MEGABYTE:  # docs/protocol.md 9.12: it is a download, which lives for an hour (10.4)
                form = "url"
                params = {"expiresIn": 3600, **params}
        file: Json = {"mimeType": mime_type, "size": size, "filename": filename}
        if "expiresIn" in params:
            file["expiresAt"] = int(time.time() * 1000) + round(params["expiresIn"] * 1000)
        if form == "url":
            path = f"downloads/{size}/{seed}/{quote(filename, safe='')}"
            query = {"expires": file.get("expiresAt"), "type": mime_type}
            file |= download_address(state, path, params.get("auth"), params.get("absolute", False), **query)
        elif size > MAX_INLINE:
            raise AbpError("INVALID_PARAMS", f"as {form}, at most {MAX_INLINE // MEGABYTE} MB")
        elif form == "dataUrl":
            file["downloadUrl"] = f"data:{mime_type};base64,{await generated_base64(size, seed)}"
        else:
            file |= {"content": await generated_base64(size, seed), "encoding": "base64"}
        answer: Json = {"file": file}
        if params.get("digest"):
            answer["sha256"] = digest(size, seed)
        return answer

    return handler


async def job_run(params: Json, context: Context) -> Json:
    """Run ``steps`` steps and report progress after each."""
    steps, delay, label = int(params.get("steps", 5)), params.get("delay", 50), params.get("label", "job")
    about = {"operationId": context.call_id, "label": label}
    await context.notify("notifications/operation/started", {**about, "steps": steps})
    outcome = "cancelled"
    try:
        for step in range(1, steps + 1):
            await asyncio.sleep(delay / 1000)
            await context.progress(progress=step, total=steps, status=f"step {step} of {steps}", stage=label)
        outcome = "success"
    finally:
        await context.notify("notifications/operation/completed", {**about, "outcome": outcome})
    return {"steps": steps, "label": label}


async def job_wait(_params: Json, _context: Context) -> None:
    await asyncio.Event().wait()


async def form_ask(params: Json, context: Context) -> Json:
    request: Json = {name: params[name] for name in ("method", "params", "timeout") if name in params}
    return {"response": await context.elicit(request)}


def _pattern(size: int) -> bytes:
    """Return ``size`` bytes, of which byte i is i % 251."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def _file(size: int) -> Json:
    return wrap(_pattern(size))


def _mixed(size: int) -> Json:
    text = "grüße, 世界"
    plain = {"content": text, "mimeType": "text/plain", "encoding": "utf-8", "size": len(text.encode())}
    parts = {"large": _file(300 * 1024), "small": _file(size), "blob": _file(size), "text": _file(size), "plain": plain}
    return {**parts, "nested": [{"item": _file(size)}]}


def _flat(size: int) -> Json:
    return {"document": base64.b64encode(_pattern(size)).decode(), "mimeType": OCTETS, "size": size}


def _deep(size: int) -> Json:
    six = {"six": _file(size), "note": "six levels down"}
    return {"one": {"two": {"three": {"four": {"five": six}}}}}


SHAPES: dict[str, Callable[[int], Json]] = {
    "base64": lambda size: {"file": _file(size), "size": size},
    "empty": lambda _size: {"file": _file(0), "size": 0},
    "top": lambda size: wrap(_pattern(size), filename="pattern.bin"),
    "flat": _flat,
    "deep": _deep,
    "list": lambda size: {"files": [_file(size + extra) for extra in range(3)]},
    "mixed": _mixed,
    "nonAscii": lambda size: {"text": "é 世界 𝄞 🎼", "ключ 🎵": "value", "file": _file(size)},
}


def shape(params: Json) -> Json:
    """Answer known bytes in the form that is asked for, with the same keys as the page."""
    name = params["shape"]
    data = SHAPES[name](int(params.get("size", 1024)))
    if name in ("top", "flat"):  # the answer itself is the file
        return data
    return {**data, "shape": name, "note": "metadata beside the file"}


def file_list() -> dict[str, Handler]:
    """Return the handlers of ``file.list`` and ``files.clear``, which share a connection's own list of files."""
    modified = "2024-01-15T09:00:00.000Z"
    files = [
        {"name": name, "size": len(text.encode()), "mimeType": mime_type, "modified": modified}
        for name, mime_type, text in SAMPLES
    ]

    async def clear(_params: Json, context: Context) -> Json:
        count = len(files)
        message = f"Remove all {count} files from the list?"
        if count == 1:
            message = "Remove the file from the list?"
        params = {"message": message, "title": "Clear the file list", "destructive": True}
        params |= {"confirmLabel": "Remove", "cancelLabel": "Keep"}
        response = await context.elicit({"method": "elicitation/confirm", "params": params})
        data = response.get("data")
        is_confirmed = isinstance(data, dict) and data.get("confirmed") is True
        if not response.get("success") or not is_confirmed:
            raise Cancelled("not confirmed")
        files.clear()
        return {"cleared": count}

    return {"file.list": sync(lambda _params: {"files": [dict(file) for file in files]}), "files.clear": clear}


def greeting(name: str) -> Capability:
    """Return the capability that ``app.toggle`` adds under a name."""
    input_schema = {"type": "object", "properties": {"name": {"type": "string", "description": "Who is greeted"}}}
    output_schema = {"type": "object", "properties": {"greeting": {"type": "string", "description": "A greeting"}}}
    description = "A greeting, from a capability that was added while the app ran"
    definition = {"name": name, "description": description, "inputSchema": input_schema, "outputSchema": output_schema}
    return Capability(listed(definition), sync(lambda params: {"greeting": f"Hello, {params.get('name', 'world')}"}))


def app_handlers(state: State, record: Record) -> dict[str, Handler]:
    """Return the handlers of one connection by capability."""
    return {
        "convert.markdownToHtml": sync(markdown_to_html),
        "export.html": sync(export_html),
        "export.pdf": sync(export_pdf),
        "archive.gzip": sync(archive_gzip),
        "data.csv": sync(data_csv),
        "data.json": sync(data_json),
        "audio.tone": sync(audio_tone),
        "image.info": sync(image_info),
        "file.digest": sync(file_digest),
        "file.generate": file_generate(state),
        **file_list(),
        "job.run": job_run,
        "job.wait": job_wait,
        "form.ask": form_ask,
        "app.record": sync(lambda _params: record.as_json()),
        "shape": sync(shape),
    }


def listed(definition: Json) -> Json:
    """Return a definition as a socket lists it: without what only a page can do."""
    entry = {"features": {}, **copy.deepcopy(definition), "available": True, "requirements": []}
    entry.pop("uses", None)
    if entry["name"] == "shape":
        entry["description"] = "For tests of clients: an answer in one particular form, with known bytes (i % 251)."
        entry["inputSchema"]["properties"]["shape"]["enum"] = list(SHAPES)
    elif entry["name"] == "file.generate":
        form = entry["inputSchema"]["properties"]["as"]
        form["enum"] = [name for name in form["enum"] if name != "blobUrl"]
        form["description"] = "Form of the answer (default base64; buffer and blob mean the same here)"
    elif entry["name"] == "export.pdf":
        entry["description"] = "The text of some HTML as a PDF of one page."
    return entry


def with_definitions(handlers: dict[str, Handler], faults: bool = False) -> dict[str, Capability]:
    """Return the capabilities that have a handler here, by name."""
    definitions = [definition for definition in capabilities(faults) if definition["name"] in handlers]
    return {entry["name"]: Capability(listed(entry), handlers[entry["name"]]) for entry in definitions}
