"""Words of Playwright for the end of a page, a browser or a driver, and for a navigation: it has no types for them."""

from __future__ import annotations

__all__ = ["CLOSED_MESSAGES", "DRIVER_CLOSED_MESSAGE", "NAVIGATED_MESSAGES", "NOT_SENT_MESSAGES", "is_closed"]

#: Parts of messages: the page, the browser or the connection to it has ended.
CLOSED_MESSAGES = (
    "Target crashed",
    "has been closed",
    "Target closed",
    "Connection closed",
    "Session closed",
    "browser has disconnected",
)
#: The driver, a process of its own, has ended.
DRIVER_CLOSED_MESSAGE = "Connection closed while reading from the driver"
#: The page navigated or was reloaded.
NAVIGATED_MESSAGES = (
    "Cannot find context",
    "navigated or closed",
    "context was destroyed",
    "Promise was collected",
    "Could not find object",
    "JSHandle is disposed",
)
#: Those of a navigation that say that the command did not reach the page's script.
NOT_SENT_MESSAGES = ("Cannot find context", "Could not find object")


def is_closed(error: Exception) -> bool:
    """Return whether an exception of Playwright says that the page, its browser or the driver has ended."""
    return any(text in str(error) for text in CLOSED_MESSAGES)
