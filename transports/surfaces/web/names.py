"""File names in headers: ``Content-Disposition`` by RFC 6266 and RFC 8187. No I/O."""

from __future__ import annotations

import re
from email.message import Message
from urllib.parse import quote

from ...binary.filenames import safe_filename

__all__ = ["disposition", "named"]

#: Characters that RFC 8187 lets stand; all others are percent-encoded.
_PLAIN = "!#$&+-.^_`|~"
_ODD = re.compile(r"[^\x20-\x7e]|[\"\\%]")


def disposition(kind: str, filename: str, mime_type: str) -> str:
    """``inline`` or ``attachment`` with a name that is harmless: made safe again, whatever the store says, as ASCII in
    quotes for old clients and, where that is not all of it, as UTF-8."""
    name = safe_filename(filename, fallback="artifact", mime_type=mime_type)
    plain = _ODD.sub("_", name)
    header = f'{kind}; filename="{plain}"'
    return header if plain == name else f"{header}; filename*=UTF-8''{quote(name, safe=_PLAIN)}"


def named(header: str | None) -> str | None:
    """The name in a ``Content-Disposition`` that somebody sent, to be made safe by the store."""
    if not header:
        return None
    message = Message()
    message["Content-Disposition"] = header
    name = message.get_filename()
    return name or None
