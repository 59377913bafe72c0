"""Addresses of documents: whether one is loaded already, and why one did not load."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from ...errors import first_line
from ...errors.transport import NOTHING_LISTENS
from ...protocol.urls import redact_url

__all__ = ["explain_load_failure", "now_at", "same_document", "shown_address"]

#: Characters of an address that a page chose.
_SHOWN = 200
_REASONS = {
    "ERR_CONNECTION_REFUSED": f"{NOTHING_LISTENS}; start the app or correct the address",
    "ERR_NAME_NOT_RESOLVED": "the host name is not known; correct the address",
    "ERR_CONNECTION_TIMED_OUT": "the host does not answer; correct the address or check the network",
    "ERR_CERT": "its certificate is not trusted; have this system trust it, or give a context= that was made with "
    "ignore_https_errors=True",
    "ERR_SSL_PROTOCOL_ERROR": "it does not speak TLS as https:// says; try http://, or mend its TLS",
    "ERR_UNSAFE_PORT": "browsers refuse this port; serve the app on another",
    "ERR_ABORTED": "the address gives a download, not a page",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer; is it an https:// address?",
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


def now_at(current: str, target: str) -> str:
    """Return words for a message about ``target``: where it has led to, if that is another document."""
    return "" if same_document(current, target) else f", now at {shown_address(current)},"


def shown_address(url: str) -> str:
    """Return an address that a page chose, for a message: without secrets, and not too long."""
    return redact_url(url)[:_SHOWN]


def same_document(current: str, target: str) -> bool:
    """Whether a page at ``current`` need not navigate to ``target``. A fragment counts only if the target has one."""
    current_parts, target_parts = urlsplit(current), urlsplit(target)
    fragment = target_parts.fragment in ("", current_parts.fragment)
    return fragment and _document(current_parts) == _document(target_parts)


def _document(parts: SplitResult) -> tuple[str, str, str, str]:
    return parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query
