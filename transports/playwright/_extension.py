"""Chrome extensions as targets (``extension:FOLDER``, or a folder with a ``manifest.json``), and their loading."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .._internal.files import read_regular
from ..errors import ConnectFailed, ProtocolError, UsageError, first_line
from ..protocol._strict_json import decode_json

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

#: Default path of the page that speaks ABP; ``extension_page=`` names another.
EXTENSION_PAGE = "abp-app.html"
_SCHEME = "extension:"
#: Chromium writes an id in hexadecimal digits from ``a`` to ``p``.
_DIGITS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def extension_folder(target: str) -> Path | None:
    """Return the absolute folder of the extension ``target``, or ``None`` if the target is not an extension.

    Raises :class:`~transports.errors.UsageError` for ``extension:`` with a folder without a ``manifest.json``.
    """
    has_scheme = target.startswith(_SCHEME)
    if not has_scheme and "://" in target:
        return None
    folder = Path(target.removeprefix(_SCHEME))
    with suppress(OSError, RuntimeError, ValueError):  # not a valid path, or the home of an unknown user
        folder = folder.expanduser()
        if (folder / "manifest.json").is_file():
            return folder.resolve()
    if has_scheme:
        raise UsageError(f"{folder} is not an extension: it has no manifest.json; give the unpacked, built extension")
    return None


def extension_page_in(folder: Path, page: str | None) -> str:
    """Return the path of ``page`` inside the extension, query and fragment included, without a leading slash.

    Raises :class:`~transports.errors.UsageError` if the folder has no such file.
    """
    path = (page or EXTENSION_PAGE).lstrip("/")
    file = path.partition("#")[0].partition("?")[0]
    if ".." in Path(file).parts or "\0" in file or not (folder / file).is_file():
        raise UsageError(f"the extension in {folder} has no page {file}; name the one that speaks ABP: extension_page=")
    return path


def extension_id(folder: Path) -> str | None:
    """Return Chromium's id for the extension in an absolute ``folder``: of the ``key`` in its manifest, or
    of the path without one. ``None`` for a broken manifest."""
    try:
        manifest = decode_json(read_regular(folder / "manifest.json", 1 << 20))
        key = manifest.get("key") if isinstance(manifest, dict) else None
        source = base64.b64decode(key) if isinstance(key, str) else _path_bytes(folder)
    except (OSError, ValueError, ProtocolError):
        return None
    return hashlib.sha256(source).hexdigest()[:32].translate(_DIGITS)


def _path_bytes(folder: Path) -> bytes:
    if sys.platform == "win32":
        return str(folder).encode("utf-16-le")
    return os.fsencode(folder)


async def load_unpacked(cdp: CDPSession, folder: Path, browser: str) -> str:
    """Load the extension in ``folder`` over the browser's own CDP session, and return its id there.

    Raises :class:`~transports.errors.ConnectFailed` if the browser refuses it; ``browser`` is its name for messages.
    """
    from playwright.async_api import Error  # late: targets are recognised without Playwright

    try:
        # Not --load-extension: Chrome and Edge ignore it from 137 on, and it does not return the id.
        reply = await cdp.send("Extensions.loadUnpacked", {"path": str(folder)})
    except Error as error:
        reason = first_line(error).rpartition("Extensions.loadUnpacked): ")[2]
        raise ConnectFailed(
            f"{browser} did not load the extension in {folder}: {reason}; a Chrome or Edge may refuse unpacked "
            "extensions (from 137 on --load-extension is ignored), use a Chromium"
        ) from None
    extension_id: str = reply["id"]
    return extension_id
