"""Bodies of requests and responses without secrets, by their MIME type."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ...protocol.redaction import REDACTED, Redactor
from ...protocol.secret_values import SecretValues

__all__ = ["clean_body", "learn_body"]

_REDACTOR = Redactor()
#: A part of ``multipart/form-data`` (RFC 7578) that is a text: its head, and its value until the next boundary.
_PART = re.compile(
    r"(content-disposition:[^\r\n]*\bname=\"([^\"\r\n]*)\"[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n)"
    r"(.*?)(?=\r?\n--)",
    re.IGNORECASE | re.DOTALL,
)


def learn_body(text: str, mime_type: str, secrets: SecretValues) -> None:
    """Let ``secrets`` learn what a body holds. Never raises, whatever the body is."""
    if (value := _json(text, mime_type)) is not None:
        secrets.learn(value)
    elif "x-www-form-urlencoded" in mime_type:
        secrets.learn_pairs(text)
    elif "multipart/" in mime_type:
        for part in _PART.finditer(text):
            if _REDACTOR.is_secret(part[2]):
                secrets.learn_value(part[3])
    else:
        if "html" in mime_type:
            secrets.learn_html(text)
        secrets.learn(text)


def clean_body(text: str, mime_type: str, secrets: SecretValues) -> str:
    """Return a body without secrets."""
    if (value := _json(text, mime_type)) is not None:
        return msgspec.json.encode(secrets.tree(value)).decode()
    if "x-www-form-urlencoded" in mime_type:
        return secrets.line(text)
    if "multipart/" in mime_type:
        text = _PART.sub(lambda part: part[1] + (REDACTED if _REDACTOR.is_secret(part[2]) else part[3]), text)
    return secrets.text(text)


def _json(text: str, mime_type: str) -> Mapping[str, object] | list[object] | None:
    """An object or a list that the text is, whatever type it is said to have."""
    if "json" not in mime_type and text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
