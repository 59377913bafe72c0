"""Whether a page that is no app asks to sign in: nobody has yet, or what was kept of it has expired."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .navigation import same_document

if TYPE_CHECKING:
    from playwright.async_api import Frame

__all__ = ["SIGN_IN", "asks_to_sign_in"]

#: What to do then, for a message.
SIGN_IN = (
    "it asks to sign in: `abp login NAME` does that once for an app of abp.toml (docs/team.md); without one, give "
    "profile= or storage_state="
)
#: Words in an address.
_WORDS = re.compile(r"(?<![a-z])(?:log-?[io]n|sign-?in|sso|saml2?|oauth2?|authorize)(?![a-z])", re.IGNORECASE)
#: Seconds for the page to answer.
_TIMEOUT = 2.0


async def asks_to_sign_in(frame: Frame, target: str) -> bool:
    """Whether the page in ``frame``, which was opened at ``target``, has a field for a password, or has led to an
    address that speaks of signing in. Never raises; what hangs asks for nothing, after two seconds."""
    moved = not same_document(frame.url, target)
    if moved and _WORDS.search(_place(frame.url)) and not _WORDS.search(_place(target)):
        return True
    with contextlib.suppress(Exception):  # whatever became of the page, it is the other error that counts
        async with asyncio.timeout(_TIMEOUT):
            return await frame.locator("input[type=password]").count() > 0
    return False


def _place(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc + parts.path
