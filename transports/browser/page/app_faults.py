"""What is wrong with a page as an app, in words that end an error message."""

from __future__ import annotations

from ...errors import format_seconds
from .received import FoundApp

__all__ = ["advice_for", "app_fault"]

_LACKS = {"abp": "no window.abp", "webmcp": "no WebMCP tools", "auto": "no window.abp and no WebMCP tools"}


def app_fault(found: FoundApp, protocol: str, grace: float) -> str:
    """Return what is wrong with the page ``grace`` seconds after it loaded; empty if its ``window.abp`` is whole.
    ``protocol`` is ``abp``, ``webmcp`` or ``auto``: what was looked for."""
    if found.threw:
        return f"has a window.abp that throws: {found.threw[:200]}"
    if not found.present:
        return f"has {_LACKS[protocol]} {format_seconds(grace)} after it loaded"
    if found.missing:
        return f"has a window.abp without {' and '.join(found.missing[:2])}: it is not whole"
    return ""


def advice_for(found: FoundApp, protocol: str, status: int | None) -> str:
    """Return what to look at where a page, answered with the HTTP ``status`` if that is known, has nothing to drive."""
    if status == 426:  # Upgrade Required
        return "take ws:// for a WebSocket"
    if protocol != "webmcp":
        return "is it the right address, and does the app speak ABP?"
    without = "" if found.webmcp else "; this browser offers it no WebMCP, see `abp doctor`"
    return f"does it register tools, or a form with a toolname?{without}"
