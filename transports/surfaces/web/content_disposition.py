"""``Content-Disposition`` headers of answers, by RFC 6266 and RFC 8187. No I/O."""

from __future__ import annotations

import re
from urllib.parse import quote

from ...binary.filenames import safe_filename

__all__ = ["content_disposition"]

#: Characters that RFC 8187 lets stand as they are; all others are percent-encoded.
_UNQUOTED = "!#$&+-.^_`|~"
_NOT_IN_QUOTED_STRING = re.compile(r"[^\x20-\x7e]|[\"\\%]")


def content_disposition(kind: str, filename: str, mime_type: str) -> str:
    """Return the header for ``kind``, ``inline`` or ``attachment``.

    The name is made safe again, whatever the store says. It is written as ASCII in quotes, which every client reads,
    and as UTF-8 too where ASCII is not all of it."""
    name = safe_filename(filename, fallback="artifact", mime_type=mime_type)
    ascii_name = _NOT_IN_QUOTED_STRING.sub("_", name)
    header = f'{kind}; filename="{ascii_name}"'
    return header if ascii_name == name else f"{header}; filename*=UTF-8''{quote(name, safe=_UNQUOTED)}"
