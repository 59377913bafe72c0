"""Errors for a browser that was not found or did not start, with what to do about each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...errors import BrowserNotFound, ProfileInUse, first_line
from .find import HOW_TO_INSTALL
from .profile import ALREADY_OPEN_MESSAGES

__all__ = ["is_playwright_error", "not_found", "require_display", "start_error", "start_reason"]

_DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY")
_HOW_TO_GET = {
    "chrome": "install it, or leave browser= out to take any Chromium",
    "msedge": "install it, or leave browser= out to take any Chromium",
    "firefox": "run `playwright install firefox`, or install the system's",
    "webkit": "run `playwright install webkit`",
}
_SANDBOX_FAILED = "Chromium sandboxing failed!"
#: How Playwright reports it, and how Chromium's helper does, below what else is said.
_SANDBOX_FAILURES = (_SANDBOX_FAILED, "Failed to move to new namespace")
_HOW_TO_SANDBOX = (
    "allow user namespaces (Docker: --cap-add SYS_ADMIN, or a seccomp profile with clone and unshare; Ubuntu: sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0), or set ABP_BROWSER to a Chrome that was installed as a package"
)


def is_playwright_error(error: BaseException) -> bool:
    """Return whether an exception is one of Playwright's, without which it was not raised."""
    from playwright.async_api import Error

    return isinstance(error, Error)


def start_reason(error: BaseException) -> str:
    """Return what Playwright says of a browser that did not start, in one line."""
    return _SANDBOX_FAILED if any(text in str(error) for text in _SANDBOX_FAILURES) else first_line(error)


def not_found(name: str | None) -> BrowserNotFound:
    """Return the error for a browser that this system lacks; ``name`` is the one that was asked for, if any."""
    wanted = name or "Chromium or Chrome"
    return BrowserNotFound(f"no {wanted} was found on this system; {_HOW_TO_GET.get(name or '', HOW_TO_INSTALL)}")


def require_display() -> None:
    """Raise :class:`~transports.errors.BrowserNotFound` where a browser with a window cannot start."""
    if sys.platform == "linux" and not any(map(os.environ.get, _DISPLAY_VARIABLES)):
        raise BrowserNotFound("there is no display for a browser window; unset ABP_HEADLESS, or leave headless=True")


def start_error(engine: str, program: str, profile: Path | None, reason: str) -> BrowserNotFound | ProfileInUse:
    """Return the error for a browser that did not start.

    ``reason`` is ``within N s``, or the message of Playwright in parentheses.
    """
    if _SANDBOX_FAILED in reason:
        return BrowserNotFound(f"{program} did not start: it has no sandbox here; {_HOW_TO_SANDBOX}")
    if any(text in reason for text in ALREADY_OPEN_MESSAGES):
        return ProfileInUse.at(profile)
    if engine != "chromium":
        reason += f"; `playwright install {engine}` brings the build that Playwright is made for"
        return BrowserNotFound(f"{program} did not start {reason}")
    return BrowserNotFound(f"{program} did not start {reason}; {HOW_TO_INSTALL}")
