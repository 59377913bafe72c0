"""Everything that can go wrong, as one tree.

Every error has a stable ``code`` (the names of the ABP specification, and ours where a check on our side fails),
a ``message`` that says what to do next and never holds a credential, and says whether it is worth trying again
(``retryable``) and whether the session is still usable (``session_survives``)::

    ABPError
    ├── UsageError            INVALID_PARAMS      the call to this library was wrong (target, params, option)
    ├── CapabilityError       the app's own code  the app answered "no"
    ├── TransportError        TRANSPORT_ERROR     the way to the app failed
    │   ├── ConnectFailed     TRANSPORT_ERROR     nothing answers at the target
    │   ├── BrowserNotFound   BROWSER_ERROR       no browser could be found or started
    │   ├── ProfileInUse      BROWSER_ERROR       another process has the browser profile open
    │   ├── NotAbpApp         NOT_SUPPORTED       the page has no (whole) ``window.abp``
    │   ├── DiscoveryFailed   DISCOVERY_FAILED    a page gave no manifest; it may speak ABP all the same
    │   ├── CallTimeout       TIMEOUT             no answer within the deadline
    │   ├── ProtocolError     PROTOCOL_ERROR      an answer came and made no sense; the session goes on
    │   ├── NotRecorded       NOT_RECORDED        a replay was asked what its recording does not hold
    │   ├── BadRecording      BAD_RECORDING       a recording cannot be read, or what it refers to is gone
    │   └── Disconnected      DISCONNECTED        the far side is gone
    │       ├── BrowserCrashed                    the browser or its driver died
    │       ├── PageCrashed                       the page's renderer died
    │       └── ContextLost                       the page navigated or reloaded during the call
    ├── BinaryError           INTERNAL_ERROR      content came and cannot be trusted
    │   ├── SizeMismatch      SIZE_MISMATCH       declared and real size differ
    │   ├── BadDescriptor     PROTOCOL_ERROR      the description itself is invalid (a negative size, say)
    │   ├── BadEncoding       INVALID_ENCODING    not strictly valid base64, or an unknown encoding
    │   ├── UnsupportedBinary NOT_SUPPORTED       no bytes to take (a detached buffer, say)
    │   ├── TooLarge          TOO_LARGE           over the limit, which the message names
    │   └── DownloadFailed    DOWNLOAD_FAILED     a ``downloadUrl`` gave no whole file
    │       ├── Truncated     DOWNLOAD_FAILED     the body ended early, also after resuming
    │       ├── UrlExpired    REFERENCE_EXPIRED   ``expiresAt`` has passed
    │       ├── AddressBlocked BLOCKED_ADDRESS    the address is private and not the app's own
    │       ├── RedirectRefused DOWNLOAD_FAILED   a redirect loops, or leads where none may
    │       └── EncodingRefused DOWNLOAD_FAILED   the server compressed the body although asked not to
    └── StoreError            STORE_ERROR         the artifact store could not do it
        ├── StoreFull         STORE_FULL          no space left, or the retention's limits are met
        ├── StoreUnavailable  STORE_UNAVAILABLE   the object store does not answer, or refuses us
        ├── ArtifactNotFound  ARTIFACT_NOT_FOUND  no such id
        └── Corrupt           CORRUPT             stored bytes no longer match their hash
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

__all__ = [
    "ABPError",
    "AddressBlocked",
    "ArtifactNotFound",
    "BadDescriptor",
    "BadEncoding",
    "BadRecording",
    "BinaryError",
    "BrowserCrashed",
    "BrowserNotFound",
    "CallTimeout",
    "CapabilityError",
    "ConnectFailed",
    "ContextLost",
    "Corrupt",
    "Disconnected",
    "DiscoveryFailed",
    "DownloadFailed",
    "EncodingRefused",
    "NotAbpApp",
    "NotRecorded",
    "PageCrashed",
    "ProfileInUse",
    "ProtocolError",
    "RedirectRefused",
    "SizeMismatch",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoredPart",
    "TooLarge",
    "TransportError",
    "Truncated",
    "UnsupportedBinary",
    "UrlExpired",
    "UsageError",
    "redact_url",
]


class StoredPart(Protocol):
    """The part of an answer that was stored before an error: a :class:`transports.Result`, seen from below."""

    @property
    def data(self) -> object:
        """The answer, each stored binary replaced by its reference."""

    @property
    def artifacts(self) -> Mapping[str, object]:
        """The references (:class:`transports.ArtifactRef`) by their place in ``data``."""

    def as_dict(self) -> dict[str, object]:
        """The part as JSON."""

    def summary(self, *, max_chars: int = 1000) -> str:
        """The part as text for an agent."""


class ABPError(Exception):
    """Base of all errors this library raises.

    ``retry_after`` is in seconds. ``alternatives`` are names of capabilities the app offers instead.
    ``details`` holds JSON values only. ``result`` is set where part of an answer was stored before the error:
    what it lists is safe in the store.
    """

    code: str = "INTERNAL_ERROR"
    retryable: bool = False
    session_survives: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        alternatives: Sequence[str] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable
        self.retry_after = retry_after
        self.alternatives = tuple(alternatives)
        self.details: dict[str, object] = dict(details or {})
        self.result: StoredPart | None = None

    def as_dict(self) -> dict[str, object]:
        """The error as JSON: ``code``, ``message``, ``retryable`` and, where there are any, the rest."""
        out: dict[str, object] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.retry_after is not None:
            out["retry_after"] = self.retry_after
        if self.alternatives:
            out["alternatives"] = list(self.alternatives)
        if self.details:
            out["details"] = dict(self.details)
        return out


class UsageError(ABPError):
    code = "INVALID_PARAMS"


class CapabilityError(ABPError):
    """The app answered ``success: false``; ``code`` is the app's own. ``cancelled`` tells a cancellation apart."""

    code = "OPERATION_FAILED"
    cancelled: bool = False


class TransportError(ABPError):
    code = "TRANSPORT_ERROR"


class ConnectFailed(TransportError):
    session_survives = False


class BrowserNotFound(TransportError):
    code = "BROWSER_ERROR"
    session_survives = False


class ProfileInUse(TransportError):
    code = "BROWSER_ERROR"
    retryable = True
    session_survives = False

    @classmethod
    def at(cls, folder: object) -> ProfileInUse:
        return cls(
            f"the profile {folder} is open in another browser process; close that one, give another profile=, or "
            "attach to it with cdp_url="
        )


class NotAbpApp(TransportError):
    code = "NOT_SUPPORTED"
    session_survives = False


class DiscoveryFailed(TransportError):
    code = "DISCOVERY_FAILED"


class CallTimeout(TransportError):
    code = "TIMEOUT"
    retryable = True


class ProtocolError(TransportError):
    code = "PROTOCOL_ERROR"


class NotRecorded(TransportError):
    """The message shows the nearest thing that was recorded, and ``details["diff"]`` how it differs."""

    code = "NOT_RECORDED"


class BadRecording(TransportError):
    """``details["line"]`` is the line at fault, counted from 1."""

    code = "BAD_RECORDING"
    session_survives = False


class Disconnected(TransportError):
    code = "DISCONNECTED"
    retryable = True
    session_survives = False


class BrowserCrashed(Disconnected):
    pass


class PageCrashed(Disconnected):
    pass


class ContextLost(Disconnected):
    pass


class BinaryError(ABPError):
    """Content came and cannot be trusted; nothing of it is visible in the store."""


class SizeMismatch(BinaryError):
    code = "SIZE_MISMATCH"


class BadDescriptor(BinaryError):
    code = "PROTOCOL_ERROR"


class BadEncoding(BinaryError):
    code = "INVALID_ENCODING"


class UnsupportedBinary(BinaryError):
    code = "NOT_SUPPORTED"


class TooLarge(BinaryError):
    code = "TOO_LARGE"


class DownloadFailed(BinaryError):
    code = "DOWNLOAD_FAILED"


class Truncated(DownloadFailed):
    retryable = True


class UrlExpired(DownloadFailed):
    code = "REFERENCE_EXPIRED"


class AddressBlocked(DownloadFailed):
    code = "BLOCKED_ADDRESS"


class RedirectRefused(DownloadFailed):
    pass


class EncodingRefused(DownloadFailed):
    pass


class StoreError(ABPError):
    code = "STORE_ERROR"


class StoreFull(StoreError):
    code = "STORE_FULL"


class StoreUnavailable(StoreError):
    code = "STORE_UNAVAILABLE"


class ArtifactNotFound(StoreError):
    code = "ARTIFACT_NOT_FOUND"


class Corrupt(StoreError):
    code = "CORRUPT"


_USERINFO = re.compile(r"^((?:[a-z][a-z0-9+.-]*:)*[/\\]*)[^/\\]*@", re.IGNORECASE)


def redact_url(url: str) -> str:
    """``url`` fit for a message or a log: no user info, no query (signed links carry their secret there), no fragment,
    of a ``data:`` URL its head only, and of the command line of an MCP server the command."""
    url = url.strip()
    if url[:10].lower() == "mcp+stdio:":
        head, space, _ = url.partition(" ")
        return head + " …" * bool(space)
    if url[:5].lower() == "data:":
        head, comma, _ = url[:80].partition(",")
        return (head if comma else "data:") + ",…"
    bare, _, _ = url.partition("#")
    bare, mark, _ = bare.partition("?")
    return _USERINFO.sub(r"\1", bare) + ("?…" if mark else "")
