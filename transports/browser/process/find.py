"""Which browser is there to start."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import BrowserNotFound, UsageError

__all__ = ["ENGINES", "HOW_TO_INSTALL", "Choice", "find_browser"]

HOW_TO_INSTALL = "run `abp doctor --install`, or set ABP_BROWSER to the executable of a Chromium or Chrome"
#: The names a browser can be asked for by, and the engine of Playwright that drives it.
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
#: What ``playwright install`` puts into its folder: which programs, below which folders.
_INSTALLED = {
    "chromium": ("chromium-*/chrome-*/*", ("chrome", "chrome.exe", "Chromium")),
    "firefox": ("firefox-*/firefox/*", ("firefox", "firefox.exe")),
    "webkit": ("webkit-*/*", ("pw_run.sh", "Playwright.exe")),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A browser executable and why it was taken. ``own`` is one that Playwright has built itself."""

    path: str
    reason: str
    own: bool = False


def find_browser(executable: str | None = None, name: str | None = None) -> Choice | None:
    """The browser to start: ``executable``, else the one called ``name`` (of :data:`ENGINES`), else ``ABP_BROWSER``,
    else an installed Chrome, Chromium or Edge, else the one that ``playwright install chromium`` put there. ``None`` if
    there is none.

    Raises :class:`~transports.errors.BrowserNotFound` if the one that was asked for does not exist, and
    :class:`~transports.errors.UsageError` for a name that no browser has.
    """
    if name is not None and name not in ENGINES:
        raise UsageError(f"no browser is called {name!r}; there are {', '.join(ENGINES)}")
    asked = executable or (os.environ.get("ABP_BROWSER") if name is None else None)
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise BrowserNotFound(f"no executable browser at {asked}; correct ABP_BROWSER or unset it")
        return Choice(found, "named by the caller" if executable else "named by ABP_BROWSER")
    if name in ("firefox", "webkit") and (installed := _installed(name)):
        return installed  # the build that Playwright is made for goes before any other
    for family in [name] if name else ["chrome", "chromium", "msedge"]:
        for command in _COMMANDS[family]:
            if found := shutil.which(command):
                return Choice(found, "installed on this system")
    return _installed("chromium") if name in (None, "chromium") else None


def _installed(name: str) -> Choice | None:
    pattern, programs = _INSTALLED[name]
    for path in sorted(_playwright_folder().glob(pattern), reverse=True):
        if path.name in programs and os.access(path, os.X_OK):
            return Choice(str(path), "installed by Playwright", own=True)
    return None


def _playwright_folder() -> Path:
    if own := os.environ.get("PLAYWRIGHT_BROWSERS_PATH"):
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "")) / "ms-playwright"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ms-playwright"
