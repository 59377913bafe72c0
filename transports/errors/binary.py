"""Errors of content: it came, or should have come, and cannot be trusted."""

from __future__ import annotations

from .base import ABPError

__all__ = [
    "AddressBlocked",
    "BadDescriptor",
    "BadEncoding",
    "BinaryError",
    "DownloadFailed",
    "EncodingRefused",
    "RedirectRefused",
    "SizeMismatch",
    "TooLarge",
    "Truncated",
    "UnsupportedBinary",
    "UrlExpired",
]


class BinaryError(ABPError):
    """Base of the errors of content. Nothing of the content is visible in the store. The session survives, and
    ``result`` lists what else of the same answer was stored."""


class SizeMismatch(BinaryError):
    """Raised when content has another number of bytes than the app declared. The session survives. The content was
    cut on its way, so call again, or the app declares characters instead of bytes and must be corrected."""

    code = "SIZE_MISMATCH"


class BadDescriptor(BinaryError):
    """Raised when the description of content is invalid: a negative size, a field of the wrong type, a file without
    content. The session survives. Correct the app, or the parameter if the description was the caller's."""

    code = "PROTOCOL_ERROR"


class BadEncoding(BinaryError):
    """Raised when content is not strictly valid base64, or names an encoding that nobody knows. The session survives.
    Correct the app: padding, alphabet and length must be those of RFC 4648."""

    code = "INVALID_ENCODING"


class UnsupportedBinary(BinaryError):
    """Raised when there are no bytes to take: a detached buffer, a stream already read, content that the far side no
    longer has. The session survives. Call again for new content; correct the app if that does not help."""

    code = "NOT_SUPPORTED"


class TooLarge(BinaryError):
    """Raised when content passes a limit in bytes, which the message and ``details["limit"]`` name. The session
    survives. Raise the limit (``ABP_MAX_ARTIFACT_BYTES``, ``max_bytes=``), or ask the app for less."""

    code = "TOO_LARGE"


class DownloadFailed(BinaryError):
    """Raised when a ``downloadUrl`` gave no whole file: no connection, or a status such as 404. ``details["url"]`` is
    the address without credentials. The session survives. Call again if ``retryable``: that makes a new URL."""

    code = "DOWNLOAD_FAILED"


class Truncated(DownloadFailed):
    """Raised when a download ended early, also after it was resumed; ``details`` holds ``received`` and ``expected`` in
    bytes. The session survives. Call again."""

    retryable = True


class UrlExpired(DownloadFailed):
    """Raised when the time in ``expiresAt`` of a download had passed. The session survives. Call the capability again
    for a new URL; if that one has expired too, compare the clocks."""

    code = "REFERENCE_EXPIRED"


class AddressBlocked(DownloadFailed):
    """Raised when a download leads to a private address that is not the app's own. Nothing was sent there. The session
    survives. Set ``ABP_ALLOW_PRIVATE_ADDRESSES=1`` if such downloads are wanted."""

    code = "BLOCKED_ADDRESS"


class RedirectRefused(DownloadFailed):
    """Raised when a redirect loops, goes on for too long, or leads to another scheme. The session survives. Have the
    app give the final URL."""


class EncodingRefused(DownloadFailed):
    """Raised when a server compressed a file although it was asked not to: its size and hash would be those of
    something else. The session survives. Configure the server to send files as they are."""
