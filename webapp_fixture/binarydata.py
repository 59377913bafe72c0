"""BinaryData over JSON: parameters are read, answers are wrapped, download references are made."""

import asyncio
import base64
import binascii
import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from webapp_fixture.csvtext import encode
from webapp_fixture.errors import AbpError
from webapp_fixture.generate import generate
from webapp_fixture.state import State

OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Binary:
    """The content of a BinaryData parameter, decoded."""

    data: bytes
    received: str
    """The form that the bytes arrived in: ``base64``, ``utf-8`` or ``Array``."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()


def _decode(content: Any, encoding: Any, where: str) -> Binary:
    if isinstance(content, list) and all(type(n) is int and 0 <= n <= 255 for n in content):
        return Binary(bytes(content), "Array")
    if not isinstance(content, str):
        raise AbpError("INVALID_TYPE", f"{where}.content must be a string with an encoding")
    if encoding == "utf-8":
        return Binary(content.encode("utf-8", "replace"), "utf-8")
    if encoding != "base64":
        message = f"{where}.encoding must say 'base64' or 'utf-8' because content is a string"
        raise AbpError("MISSING_PARAM", message)
    try:
        return Binary(base64.b64decode(content, validate=True), "base64")
    except (binascii.Error, ValueError) as error:
        raise AbpError("INVALID_PARAMS", f"{where}.content is not valid base64") from error


def read_binary(value: Any, where: str) -> Binary:
    """Return the content of a BinaryData parameter.

    Raises :class:`AbpError` for content that cannot be decoded, or whose declared size is not its real one; ``where``
    names the parameter in the message."""
    content = value.get("content") if isinstance(value, dict) else None
    if content is None:
        message = f"{where}.content is missing: binary data is {{content, mimeType, encoding?, size?}}"
        raise AbpError("MISSING_PARAM", message)
    read = _decode(content, value.get("encoding"), where)
    size = value.get("size", len(read.data))
    if size != len(read.data):
        raise AbpError("INVALID_PARAMS", f"{where}.size says {size}, but content has {len(read.data)} bytes")
    return read


def wrap(data: bytes, mime_type: str = OCTETS, filename: str | None = None, size: Any = None) -> dict[str, Any]:
    """Return bytes as BinaryData in base64. ``size`` is declared instead of the real size if it is given."""
    content = base64.b64encode(data).decode()
    if size is None:
        size = len(data)
    wrapped = {"content": content, "mimeType": mime_type, "encoding": "base64", "size": size}
    if filename is not None:
        wrapped["filename"] = filename
    return wrapped


def wrap_text(text: str, mime_type: str, filename: str) -> dict[str, Any]:
    """Return text as BinaryData with ``encoding: "utf-8"``; its ``size`` counts UTF-8 bytes."""
    data = encode(text)
    content = {"content": data.decode(), "mimeType": mime_type, "encoding": "utf-8"}
    return {**content, "size": len(data), "filename": filename}


async def generated_base64(size: int, seed: int) -> str:
    """Return a generated file as base64. It is made in pieces, so that other connections go on meanwhile."""
    parts: list[bytes] = []
    rest = b""
    for piece in generate(size, seed):
        data = rest + piece
        whole = len(data) - len(data) % 3
        parts.append(base64.b64encode(data[:whole]))
        rest = data[whole:]
        await asyncio.sleep(0)
    return b"".join([*parts, base64.b64encode(rest)]).decode()


def filename_for(title: str, extension: str) -> str:
    """Return a file name for a title: 'Sales, 2024' → 'sales-2024.html'."""
    decomposed = unicodedata.normalize("NFKD", title)
    plain = "".join(char for char in decomposed if not 0x300 <= ord(char) <= 0x36F).lower()
    stem = re.sub(r"[\W_]+", "-", plain).strip("-")[:60]
    return f"{stem or 'untitled'}.{extension}"


def download_address(state: State, path: str, auth: str | None, absolute: bool, **query: Any) -> dict[str, Any]:
    """Return ``{downloadUrl, auth?}`` for a path of this server, as the page does.

    ``auth`` names the kind of credential that the server asks for and the form in which the app hands it out."""
    token = state.token
    server, credential = {
        "none": (None, None),
        "bearer": ("bearer", {"type": "bearer", "header": f"Bearer {token}"}),
        "bearerLine": ("key", {"type": "bearer", "header": f"X-API-Key: {token}"}),
        "bearerToken": ("bearer", {"type": "bearer", "token": token}),
        "query": ("query", {"type": "query", "token": token}),
        "cookie": ("cookie", None),
    }[auth or "none"]
    address = (state.origin if absolute else "/") + path
    search = urlencode({name: value for name, value in {"auth": server, **query}.items() if value is not None})
    if search:
        address += f"?{search}"
    reference: dict[str, Any] = {"downloadUrl": address}
    if credential:
        reference["auth"] = credential
    return reference
