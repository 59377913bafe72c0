"""Code that is loaded into a page or a browser: the kit's own scripts, a caller's adapter, and Chrome extensions."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from codecs import BOM_UTF8
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .._internal.files import expand_home, read_regular
from ..errors import ConnectFailed, ProtocolError, UsageError, first_line
from ..protocol._plain_text import is_page, origin_of, redact_url
from ..protocol._strict_json import decode_json

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

#: Default path of the page that speaks ABP; ``extension_page=`` names another.
EXTENSION_PAGE = "abp-app.html"
#: Chromium writes an id in hexadecimal digits from ``a`` to ``p``.
_DIGITS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


@cache
def load_script(name: str) -> str:
    """Read a script of ``js/``, such as ``agent.js``, or of another room: ``postmessage/js/harness.js``."""
    folder = files(__package__) / "js"
    if "/" in name:
        folder = files(__package__.rpartition(".")[0])
    return (folder / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A caller's script that makes an app of a page. It runs only at its ``origin``."""

    name: str
    script: str
    origin: str

    def source(self, *, late: bool = False) -> str:
        """Return the script, wrapped to run at its origin only. ``late``: scripts of the page have run before."""
        natives = load_script("natives.js")
        adapter = load_script("adapter.js")
        arguments = f"{json.dumps(late)}, {json.dumps(self.origin)}, {json.dumps(self.name)}"
        # The stack of this error shows the line above the script. The engine makes the error, as the page may have
        # replaced the class Error.
        # The line break before the brace ends a comment in the script's last line.
        stack = "(() => { try { null.stack } catch (error) { return error.stack } })()"
        return f"({adapter})({natives}, {arguments}, {stack}, (abp) => {{\n{self.script}\n}})"


def read_adapter(path: str | Path, target: str) -> Adapter:
    """Read the file of an adapter and bind it to the origin of ``target``.

    Raises :class:`~transports.errors.UsageError`."""
    origin = origin_of(target)
    if origin is None or not is_page(target):
        raise UsageError("an adapter is for a page at an http(s):// address: it is bound to the page's origin")

    path = expand_home(path)
    try:
        script = read_regular(path, 8 << 20).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the adapter {str(path)!r} cannot be read ({reason}); correct the path") from error
    return Adapter(path.name, script, origin)


def failure_of(adapter: Adapter, threw: str | None) -> str:
    """Return why an adapter failed; empty if it did not. A failed adapter's ``window.abp`` throws the reason."""
    reason = (threw or "").removeprefix("Error: ")
    if not reason.startswith(f"the adapter {adapter.name} failed"):
        return ""
    return reason[:300]


def not_installed(adapter: Adapter, target: str, url: str) -> str:
    page = urlsplit(url)
    return (
        f"{redact_url(target)} leads to {page.scheme}://{page.netloc}, where the adapter {adapter.name} "
        f"is not installed: it is for {adapter.origin}; connect to an address of that origin"
    )


# --- Chrome extensions: extension:FOLDER, or a folder with a manifest.json -------------------------------------------


def extension_folder(target: str) -> Path | None:
    """Return the folder of the extension that a target names, or ``None`` for another target.

    Raises :class:`~transports.errors.UsageError` for ``extension:FOLDER`` without a ``manifest.json``."""
    scheme = "extension:"
    has_scheme = target.startswith(scheme)
    if not has_scheme and "://" in target:
        return None
    folder = Path(target.removeprefix(scheme))
    with suppress(OSError, RuntimeError, ValueError):  # not a valid path, or the home of an unknown user
        folder = folder.expanduser()
        if (folder / "manifest.json").is_file():
            return folder.resolve()
    if has_scheme:
        raise UsageError(f"{folder} is not an extension: it has no manifest.json; give the unpacked, built extension")
    return None


def extension_page_in(folder: Path, page: str | None) -> str:
    """Return the path of an extension's page, with its query and fragment.

    Raises :class:`~transports.errors.UsageError` if the page has no file."""
    path = (page or EXTENSION_PAGE).lstrip("/")
    file = path.partition("#")[0].partition("?")[0]
    if ".." in Path(file).parts or "\0" in file or not (folder / file).is_file():
        raise UsageError(f"the extension in {folder} has no page {file}; name the one that speaks ABP: extension_page=")
    return path


def extension_id(folder: Path) -> str | None:
    """Return an extension's id, which Chromium makes of the ``key`` in the manifest, or of the path; ``None`` if the
    manifest is broken."""
    try:
        manifest = decode_json(read_regular(folder / "manifest.json", 1 << 20).removeprefix(BOM_UTF8))
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
    """Load an extension into a running browser, and return its id.

    Raises :class:`~transports.errors.ConnectFailed` if the browser refuses the extension."""
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
