"""Handlers of the ``fault.*`` capabilities over a socket: those of the page that make sense over JSON.

Each goes wrong on purpose, in one known way. ``faults.json`` has their definitions.
"""

import asyncio
import base64
import functools
import time
import uuid
from typing import Any

from webapp_fixture.binarydata import OCTETS, download_address, wrap
from webapp_fixture.calls import Context, Handler, Json
from webapp_fixture.errors import MISSING, AbpError, RawAnswer
from webapp_fixture.generate import generate
from webapp_fixture.handlers import sync
from webapp_fixture.state import State

PDF = b"%PDF-1.4\n" + b"1 0 obj << /Type /Catalog >> endobj\n" * 40 + b"%%EOF\n"
HTML = b"<!doctype html><html><body><script>alert(1)</script></body></html>"
STATUS = {"success": True, "message": "The report was saved.", "filename": "report.pdf"}
NEEDS_URL_SAFE = bytes((0xFB, 0xEF, 0xFF, number)[number % 4] for number in range(200))


def _document(document: Json) -> Json:
    return {"document": document, "note": "metadata beside the file"}


def _pdf(**more: Any) -> Json:
    return _document({**wrap(PDF, "application/pdf", "report.pdf"), **more})


def _text(content: str, size: int) -> Json:
    return _document({"content": content, "mimeType": OCTETS, "encoding": "base64", "size": size})


def bad_base64(_params: Json) -> Json:
    """Return content with characters in the middle that are not base64."""
    text = base64.b64encode(PDF).decode()
    return _text(f"{text[:40]}*!?{text}", len(PDF))


def no_padding(_params: Json) -> Json:
    """Return base64 without the ``=`` at its end."""
    return _text(base64.b64encode(PDF[:1000]).decode().rstrip("="), 1000)


def partial(params: Json) -> Json:
    """Return several files, one of them with a wrong size."""
    index, count = params.get("index", 1), int(params.get("count", 3))
    files = []
    for number in range(count):
        data = b"".join(generate(2000 + number, number))
        files.append(wrap(data, OCTETS, f"part-{number}.bin", len(data) + (number == index)))
    return {"files": files}


def deep(params: Json) -> Json:
    """Return an object of ``depth`` nested levels (default 100)."""
    nested: Json = {"bottom": True}
    for _level in range(1, int(params.get("depth", 100))):
        nested = {"nested": nested}
    return nested


def big_json(params: Json) -> Json:
    """Return rows of about ``megabytes`` megabytes of JSON (default 1)."""
    note = "x" * 1000
    return {"rows": [{"row": row, "note": note} for row in range(int(params.get("megabytes", 1)) * 1024)]}


def throws(params: Json) -> Json:
    raise TypeError(params.get("message", "this handler throws"))


def rejects_string(_params: Json) -> Json:
    """Fail as the page does when a handler throws a string."""
    raise AbpError("OPERATION_FAILED", "a plain string", details={"thrown": "string"})


async def slow(params: Json, _context: Context) -> Json:
    """Return after ``ms`` milliseconds (default 1,000)."""
    milliseconds = params.get("ms", 1000)
    await asyncio.sleep(milliseconds / 1000)
    return {"ms": milliseconds}


async def never(_params: Json, _context: Context) -> None:
    """Return never. The definition says that the call ignores cancellation."""
    await asyncio.Event().wait()


def _reference(state: State, where: str, params: Json, expires_at: int | None = None, **query: Any) -> Json:
    """Return an answer with a generated file at an address below ``where``."""
    size, seed = int(params.get("bytes", 1 << 20)), int(params.get("seed", 0))
    path = f"{where}/{size}/{seed}/download.bin"
    auth, absolute = params.get("auth"), params.get("absolute", False)
    address = download_address(state, path, auth, absolute, expires=expires_at, **query)
    document = {**address, "mimeType": OCTETS, "size": size, "filename": "download.bin"}
    if expires_at is not None:
        document["expiresAt"] = expires_at
    return _document(document)


def _downloads(state: State) -> dict[str, Handler]:
    reference = functools.partial(_reference, state)

    def length(where: str, extreme: str) -> Handler:
        def make(params: Json) -> Json:
            query = {"delta": params.get("delta")}
            if params.get("how") == extreme:
                query[extreme] = 1
            return reference(f"faults/{where}", params, **query)

        return sync(make)

    def gone(params: Json) -> Json:
        where = f"faults/status/{params.get('status', 404)}/{params.get('times', 0)}/{uuid.uuid4()}"
        return reference(where, params, retry=params.get("retryAfter"))

    def expired(params: Json) -> Json:
        return reference("downloads", params, int((time.time() - params.get("ago", 60)) * 1000))

    return {
        "fault.short_download": length("short", "cut"),
        "fault.long_download": length("long", "endless"),
        "fault.cut_once": sync(lambda params: reference(f"faults/cut_once/{uuid.uuid4()}", params)),
        "fault.gone": sync(gone),
        "fault.expired": sync(expired),
        "fault.redirect_away": sync(lambda params: reference("faults/redirect_away", {"auth": "bearer", **params})),
    }


def fault_handlers(state: State) -> dict[str, Handler]:
    url_safe = base64.urlsafe_b64encode(NEEDS_URL_SAFE).decode()
    picture = {"image": wrap(HTML, "image/png", "picture.png")}
    return {
        "fault.wrong_size": sync(lambda params: _pdf(size=len(PDF) + int(params.get("delta", 1)))),
        "fault.bad_size": sync(lambda params: _pdf(size=params["value"])),
        "fault.bad_base64": sync(bad_base64),
        "fault.noncanonical_base64": sync(lambda _params: _text("QR==", 1)),
        "fault.no_padding": sync(no_padding),
        "fault.url_safe_base64": sync(lambda _params: _text(url_safe, len(NEEDS_URL_SAFE))),
        "fault.wrong_mime": sync(lambda _params: picture),
        "fault.bad_name": sync(lambda params: _pdf(filename=params.get("filename", "../../etc/passwd"))),
        "fault.partial": sync(partial),
        **_downloads(state),
        "fault.never": never,
        "fault.throws": sync(throws),
        "fault.rejects_string": sync(rejects_string),
        "fault.slow": slow,
        "fault.deep": sync(deep),
        "fault.big_json": sync(big_json),
        "fault.crash_half": sync(lambda _params: RawAnswer({"success": True})),
        "fault.status_only": sync(lambda _params: dict(STATUS)),
        "fault.bad_answer": sync(lambda params: RawAnswer(params.get("value", MISSING))),
    }
