"""Finds the browser to start: named by the caller, installed on the system, or installed by Playwright."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import BrowserNotFound, UsageError

__all__ = ["ENGINES", "HOW_TO_INSTALL", "BrowserChoice", "find_browser"]

HOW_TO_INSTALL = "run `abp doctor --install`, or set ABP_BROWSER to the executable of a Chromium or Chrome"
#: The accepted values of ``browser=``, and the engine of Playwright that drives each.
ENGINES = {
    "chromium": "chromium",
    "chrome": "chromium",
    "msedge": "chromium",
    "firefox": "firefox",
    "webkit": "webkit",
}
_PROGRAMS = r"C:\Program Files", r"C:\Program Files (x86)"
_COMMANDS = {
    "chrome": (
        "google-chrome-stable",
        "google-chrome",
        "chrome",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        *(rf"{programs}\Google\Chrome\Application\chrome.exe" for programs in _PROGRAMS),
    ),
    "chromium": ("chromium", "chromium-browser", "/Applications/Chromium.app/Contents/MacOS/Chromium"),
    "msedge": (
        "microsoft-edge-stable",
        "microsoft-edge",
        "msedge",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
        *(rf"{programs}\Microsoft\Edge\Application\msedge.exe" for programs in _PROGRAMS),
    ),
    "firefox": ("firefox", "firefox-esr", "/Applications/Firefox.app/Contents/MacOS/firefox"),
    "webkit": (),
}
#: Where ``playwright install`` puts its builds: a pattern of paths, and the file names of the executables.
_PLAYWRIGHT_BUILDS = {
    "chromium": ("chromium-*/chrome-*/*", ("chrome", "chrome.exe", "Chromium")),
    "firefox": ("firefox-*/firefox/*", ("firefox", "firefox.exe")),
    "webkit": ("webkit-*/*", ("pw_run.sh", "Playwright.exe")),
}


@dataclass(frozen=True, slots=True)
class BrowserChoice:
    """A browser executable, and the ``reason`` it was chosen, in words for ``abp doctor``.

    ``built_by_playwright`` is true for Playwright's own patched builds.
    """

    path: str
    reason: str
    built_by_playwright: bool = False


def find_browser(executable: str | None = None, name: str | None = None) -> BrowserChoice | None:
    """Return the browser to start, or ``None`` if there is none.

    In this order: ``executable``, the browser called ``name`` (a key of :data:`ENGINES`), ``ABP_BROWSER``, an
    installed Chrome, Chromium or Edge, the one that ``playwright install chromium`` installed.

    Raises :class:`~transports.errors.BrowserNotFound` if the named executable does not exist, and
    :class:`~transports.errors.UsageError` for an unknown name.
    """
    if name is not None and name not in ENGINES:
        raise UsageError(f"no browser is called {name!r}; there are {', '.join(ENGINES)}")
    wanted = executable or (os.environ.get("ABP_BROWSER") if name is None else None)
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise BrowserNotFound(f"no executable browser at {wanted}; correct ABP_BROWSER or unset it")
        return BrowserChoice(found, "named by the caller" if executable else "named by ABP_BROWSER")
    if name in ("firefox", "webkit") and (installed := _installed_by_playwright(name)):
        return installed  # Playwright's own build is the only one that it fully supports
    for process_tree in [name] if name else ["chrome", "chromium", "msedge"]:
        for command in _COMMANDS[process_tree]:
            if found := shutil.which(command):
                return BrowserChoice(found, "installed on this system")
    return _installed_by_playwright("chromium") if name in (None, "chromium") else None


def _installed_by_playwright(name: str) -> BrowserChoice | None:
    pattern, programs = _PLAYWRIGHT_BUILDS[name]
    for path in sorted(_playwright_browsers().glob(pattern), reverse=True):
        if path.name in programs and os.access(path, os.X_OK):
            return BrowserChoice(str(path), "installed by Playwright", built_by_playwright=True)
    return None


def _playwright_browsers() -> Path:
    if own := os.environ.get("PLAYWRIGHT_BROWSERS_PATH"):
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "")) / "ms-playwright"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ms-playwright"
