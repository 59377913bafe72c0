"""Explains why a page did not load."""

from __future__ import annotations

from ...errors import first_line

__all__ = ["NOTHING_LISTENS", "explain_load_failure"]

#: The reason where a connection is refused.
NOTHING_LISTENS = "nothing listens there; start the app or correct the address"

_REASONS = {
    "ERR_CONNECTION_REFUSED": NOTHING_LISTENS,
    "ERR_NAME_NOT_RESOLVED": "the host name is not known; correct the address",
    "ERR_CONNECTION_TIMED_OUT": "the host does not answer; correct the address or check the network",
    "ERR_CERT": "its certificate is not trusted",
    "ERR_UNSAFE_PORT": "browsers refuse this port; serve the app on another",
    "ERR_ABORTED": "the address gives a download, not a page",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer",
    "ERR_BLOCKED_BY_LOCAL_NETWORK_ACCESS_CHECKS": "the browser keeps pages out of the local network",
}


def explain_load_failure(error: str, url: str) -> str:
    """Return the reason of a failed navigation to ``url``, with what to do about it where the cause is known.

    ``error`` is the message of Playwright or the ``net::ERR_…`` code of Chromium.
    """
    first = first_line(error)
    if known := next((text for code, text in _REASONS.items() if code in first), None):
        return known
    net = first.find("net::")
    return first[net:].split(" at ")[0] if net >= 0 else first.removeprefix("Page.goto: ").replace(url, "it")
