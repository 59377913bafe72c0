"""Errors of the library, as one tree.

Each error has a stable ``code`` (a name of the ABP specification, or one of the kit for its own checks) and a
``message`` that says what to do next and never holds a credential. ``retryable`` is true if the same call may succeed
later, ``session_survives`` if the session can still be used::

    ABPError
    ├── UsageError            INVALID_PARAMS      the call to this library was wrong (target, params, option)
    ├── CapabilityError       the app's own code  the app refused, or its work failed
    │   └── PersonRequired    PERSON_REQUIRED     a form is filled in and waits for a person to send it
    ├── TransportError        TRANSPORT_ERROR     the connection to the app failed
    │   ├── ConnectFailed     TRANSPORT_ERROR     nothing answers at the target
    │   ├── BrowserNotFound   BROWSER_ERROR       no browser could be found or started
    │   ├── ProfileInUse      BROWSER_ERROR       another process has the browser profile open
    │   ├── NotAbpApp         NOT_SUPPORTED       the page has no (whole) ``window.abp``
    │   ├── DiscoveryFailed   DISCOVERY_FAILED    a page gave no manifest; it may speak ABP all the same
    │   ├── CallTimeout       TIMEOUT             no answer within the deadline
    │   ├── OutcomeUnknown    OUTCOME_UNKNOWN     the page navigated during the call of a WebMCP tool
    │   ├── ProtocolError     PROTOCOL_ERROR      an answer is not valid ABP; the session goes on
    │   ├── NotRecorded       NOT_RECORDED        a request to a replay is not in its recording
    │   ├── BadRecording      BAD_RECORDING       a recording cannot be read, or its content is gone
    │   └── Disconnected      DISCONNECTED        the far side is gone
    │       ├── BrowserCrashed                    the browser or its driver died
    │       ├── PageCrashed                       the page's renderer died
    │       └── ContextLost                       the page navigated or reloaded during the call
    ├── BinaryError           INTERNAL_ERROR      content arrived and cannot be trusted
    │   ├── SizeMismatch      SIZE_MISMATCH       declared and real size differ
    │   ├── BadDescriptor     PROTOCOL_ERROR      the description itself is invalid (a negative size, say)
    │   ├── BadEncoding       INVALID_ENCODING    not strictly valid base64, or an unknown encoding
    │   ├── UnsupportedBinary NOT_SUPPORTED       no bytes to take (a detached buffer, say)
    │   ├── TooLarge          TOO_LARGE           over the limit, which the message names
    │   ├── NotATable         NOT_A_TABLE         a file is not CSV, JSON or Parquet, or cannot be read as that
    │   └── DownloadFailed    DOWNLOAD_FAILED     a ``downloadUrl`` did not deliver a whole file
    │       ├── Truncated     DOWNLOAD_FAILED     the body ended early, also after resuming
    │       ├── UrlExpired    REFERENCE_EXPIRED   ``expiresAt`` has passed
    │       ├── AddressBlocked BLOCKED_ADDRESS    the address is private and not the app's own
    │       ├── RedirectRefused DOWNLOAD_FAILED   a redirect loops, or leads to another scheme
    │       └── EncodingRefused DOWNLOAD_FAILED   the server compressed the body although asked not to
    ├── LedgerError           LEDGER_ERROR        the ledger of a batch could not be read or written
    └── StoreError            STORE_ERROR         the artifact store could not read or write
        ├── StoreFull         STORE_FULL          no space left, or the retention's limits are met
        ├── StoreUnavailable  STORE_UNAVAILABLE   the object store does not answer, or refuses the credentials
        ├── ArtifactNotFound  ARTIFACT_NOT_FOUND  the store has no artifact with this id
        └── Corrupt           CORRUPT             stored bytes no longer match their hash

Docstrings of errors are part of the documentation: their first sentences, and what follows ``What to do:``, are the
table in docs/reference/errors.md.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Protocol, Self

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
    "LedgerError",
    "NotATable",
    "NotAbpApp",
    "NotRecorded",
    "OutcomeUnknown",
    "PageCrashed",
    "PersonRequired",
    "ProfileInUse",
    "ProtocolError",
    "RedirectRefused",
    "SizeMismatch",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoredFile",
    "StoredPart",
    "TooLarge",
    "TransportError",
    "Truncated",
    "UnsupportedBinary",
    "UrlExpired",
    "UsageError",
    "first_line",
    "format_seconds",
    "no_answer",
]

#: Names of arguments in messages: those of the Python API, or what replaces them in the command line.
_replacements: Mapping[str, str] = {}


def spelled(argument: str) -> str:
    """Return ``argument`` as the user of this process writes it: ``store=``, or ``--out`` in the command line."""
    return _replacements.get(argument, argument)


@contextmanager
def replaced_arguments(replacements: Mapping[str, str]) -> Iterator[None]:
    """Let messages of this process name ``replacements`` of arguments until the block ends."""
    global _replacements
    before = _replacements
    _replacements = replacements
    try:
        yield
    finally:
        _replacements = before


class StoredFile(Protocol):
    """Protocol of a stored file, for modules below :class:`transports.ArtifactRef`."""

    @property
    def id(self) -> str:
        """Id of the artifact."""

    @property
    def uri(self) -> str:
        """Address of the artifact, ``artifact://ID``."""

    @property
    def path(self) -> Path | None:
        """Path of the readable file on this machine, or ``None`` if the store has no files."""

    @property
    def mime_type(self) -> str:
        """MIME type of the content."""

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""

    def as_dict(self) -> dict[str, object]:
        """Return the reference as JSON values."""


class StoredPart(Protocol):
    """Protocol of an answer that was stored in part before an error, for modules below :class:`transports.Result`."""

    @property
    def data(self) -> object:
        """The answer, each stored file replaced by its reference."""

    @property
    def artifacts(self) -> Mapping[str, object]:
        """References (:class:`transports.ArtifactRef`) by their place in ``data``."""

    def as_dict(self) -> dict[str, object]:
        """Return the part as JSON values."""

    def summary(self, *, max_chars: int = 1000) -> str:
        """Return the part as text for an agent, at most ``max_chars`` characters."""


class ABPError(Exception):
    """Base of all errors that this library raises.

    ``retryable`` is true if the same call may succeed later; ``retry_after`` is the delay before it in seconds, or
    ``None`` if it is unknown. ``alternatives`` are names of capabilities that the app offers instead. ``details``
    holds JSON values only. ``sent`` is kept in ``details["sent"]``. ``result`` is set if part of an answer was
    stored before the error: its artifacts are safe in the store. ``evidence`` has the evidence of the call by kind
    (docs/evidence.md). As text, such as in the last line of a traceback, an error is its message and its code:
    ``export.pdf: the paper is out [OPERATION_FAILED]``.

    ``download_url`` is the whole address of a file that could not be downloaded, for the caller alone: it may hold
    credentials, so it is in no message, JSON, pickle, log, recording or trace.

    What to do: follow the message; call again only if ``retryable``."""

    #: Not in the ``__dict__``, which tools for debugging show and pickles hold.
    __slots__ = ("download_url",)
    download_url: str | None

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
        sent: bool | None = None,
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
        if sent is not None:
            self.sent = sent
        self.result: StoredPart | None = None
        self.evidence: Mapping[str, StoredFile] = {}
        self.download_url = None

    @property
    def sent(self) -> bool | None:
        """``False`` if the request never left, so that it cannot have run; ``None`` if that is unknown."""
        sent = self.details.get("sent")
        if isinstance(sent, bool):
            return sent
        return None

    @sent.setter
    def sent(self, sent: bool | None) -> None:
        if sent is None:
            self.details.pop("sent", None)
        else:
            self.details["sent"] = sent

    def __str__(self) -> str:
        first, newline, rest = self.message.partition("\n")
        return f"{first} [{self.code}]{newline}{rest}"

    def located(self, where: str) -> Self:
        """Put ``where``, such as the name of a capability, before the message, and return the error."""
        self.message = f"{where}: {self.message}"
        self.args = (self.message,)
        return self

    def followed_by(self, more: str) -> Self:
        """Put ``more`` after the message, and return the error."""
        self.message = f"{self.message}; {more}"
        self.args = (self.message,)
        return self

    def as_dict(self) -> dict[str, object]:
        """Return the error as JSON values: ``code``, ``message``, ``retryable``.

        ``retry_after`` (seconds), ``alternatives``, ``details`` and ``evidence`` are included if they are set."""
        out: dict[str, object] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.retry_after is not None:
            out["retry_after"] = self.retry_after
        if self.alternatives:
            out["alternatives"] = list(self.alternatives)
        if self.details:
            out["details"] = dict(self.details)
        if self.evidence:
            out["evidence"] = [{"kind": kind, **file.as_dict()} for kind, file in self.evidence.items()]
        return out


class UsageError(ABPError):
    """Raised before anything is sent, when this library was called wrongly: an unknown target or option, a setting out
    of range, parameters that do not fit the capability's schema. The session survives.

    What to do: correct the call: the message names the argument, and for parameters ``details`` holds ``path`` and
    ``faults``."""

    code = "INVALID_PARAMS"


class CapabilityError(ABPError):
    """Raised when the app answers ``success: false``. ``code``, ``retryable``, ``retry_after`` and ``alternatives`` are
    the app's own; ``cancelled`` is true if the call was cancelled. The session survives.

    What to do: call again if ``retryable``; otherwise follow the app's message, or use one of ``alternatives``."""

    code = "OPERATION_FAILED"
    cancelled: bool = False
    #: Data of the answer beside the error, until the session has stored it as ``result``.
    answered: object = None


class PersonRequired(CapabilityError):
    """Raised when a tool waits for a person: a WebMCP form without ``toolautosubmit`` is filled in and not sent. The
    session survives.

    What to do: have a person send the form in a visible browser (``headless=False``), or do without the tool."""

    code = "PERSON_REQUIRED"


class BinaryError(ABPError):
    """Base of the errors of content. The faulty content is not visible in the store. The session survives, and
    ``result`` has the other parts of the answer that were stored.

    What to do: correct the app, or call again in case the content was damaged on its way."""


class SizeMismatch(BinaryError):
    """Raised when content has the wrong size: another number of bytes than the app declared. The session survives.

    What to do: call again, in case the content was cut on its way; correct the app if it declares characters instead of
    bytes."""

    code = "SIZE_MISMATCH"


class BadDescriptor(BinaryError):
    """Raised when the description of content is invalid: a negative size, a field of the wrong type, a file without
    content. The session survives.

    What to do: correct the app, or the parameter if the description was the caller's."""

    code = "PROTOCOL_ERROR"


class BadEncoding(BinaryError):
    """Raised when content is not strictly valid base64, or has an unknown encoding. The session survives.

    What to do: correct the app: padding, alphabet and length must be those of RFC 4648."""

    code = "INVALID_ENCODING"


class UnsupportedBinary(BinaryError):
    """Raised when there are no bytes to take: a detached buffer, a stream already read, content that the far side no
    longer has. The session survives.

    What to do: call again for new content; correct the app if that does not help."""

    code = "NOT_SUPPORTED"


class TooLarge(BinaryError):
    """Raised when content passes a limit in bytes, which the message and ``details["limit"]`` name. The session
    survives.

    What to do: raise the limit (``ABP_MAX_ARTIFACT_BYTES``, ``max_bytes=``), or ask the app for less."""

    code = "TOO_LARGE"


class NotATable(BinaryError):
    """Raised by ``result.table()`` for a file that has no rows: it is not CSV, JSON or Parquet, or its content cannot
    be read as its type says. The session survives.

    What to do: read the file with ``ref.open()``: it is whole, as the app sent it; or correct the app."""

    code = "NOT_A_TABLE"


class DownloadFailed(BinaryError):
    """Raised when a ``downloadUrl`` did not deliver a whole file: no connection, or a status such as 404.
    ``details["url"]`` is the address without credentials, ``download_url`` the whole one. The session survives.

    What to do: call again if ``retryable``, which makes a new URL; otherwise correct the app."""

    code = "DOWNLOAD_FAILED"


class Truncated(DownloadFailed):
    """Raised when a download ended early, also after it was resumed; ``details`` holds ``received`` and ``expected`` in
    bytes. The session survives.

    What to do: call again."""

    retryable = True


class UrlExpired(DownloadFailed):
    """Raised when the time in ``expiresAt`` of a download had passed. The session survives.

    What to do: call again for a new URL; if that has expired, too, compare the clocks."""

    code = "REFERENCE_EXPIRED"


class AddressBlocked(DownloadFailed):
    """Raised when a download leads to a private address that is not the app's own. Nothing was sent there. The session
    survives.

    What to do: set ``ABP_ALLOW_PRIVATE_ADDRESSES=1`` if such downloads are wanted."""

    code = "BLOCKED_ADDRESS"


class RedirectRefused(DownloadFailed):
    """Raised when redirects loop, are too many, or lead to another scheme. The session survives.

    What to do: have the app give the final URL."""


class EncodingRefused(DownloadFailed):
    """Raised when a server compressed a file although it was asked not to: its size and hash would be those of the
    compressed file. With ``accept_compression``, raised for what cannot be decoded, or comes out 200 times larger. The
    session survives.

    What to do: configure the server to send files as they are, or set ``accept_compression``."""


class StoreError(ABPError):
    """Raised when the store could not read or write: a missing right, a symlink where a folder belongs, a file that
    changed while it was read. The session survives.

    What to do: change the folder that the message names, or name another with ``ABP_OUTPUT_DIR``."""

    code = "STORE_ERROR"


class StoreFull(StoreError):
    """Raised when no space is left on the disk, or when the limits of the retention are met and nothing may be deleted.
    The session survives.

    What to do: delete artifacts (``abp artifacts gc``), raise the limits, or name another store."""

    code = "STORE_FULL"


class StoreUnavailable(StoreError):
    """Raised when an object store does not answer, refuses the credentials, or has no such bucket. ``retryable`` is
    true if waiting may help. The session survives.

    What to do: check the address and the credentials."""

    code = "STORE_UNAVAILABLE"


class ArtifactNotFound(StoreError):
    """Raised when the store has no artifact with this id: it was deleted, expired, or belongs to another scope or
    store. The session survives.

    What to do: look the id up with ``abp artifacts list``."""

    code = "ARTIFACT_NOT_FOUND"


class Corrupt(StoreError):
    """Raised when stored bytes or metadata no longer match their hash. Bytes that were already read must not be
    trusted. The session survives.

    What to do: make the call again, or delete the artifact; ``abp artifacts fsck`` finds all damaged artifacts."""

    code = "CORRUPT"


class LedgerError(ABPError):
    """Raised when the ledger of a batch cannot be opened, read or written: a full disk, a database that does not
    answer, a file of another version. The session survives. ``retryable`` is true if waiting may help.

    What to do: free space, or start the database; then give the same command again, which resumes from the ledger."""

    code = "LEDGER_ERROR"


class TransportError(ABPError):
    """Raised when communication with the app failed and no subclass fits, for example when content that stayed in the
    page cannot be fetched. The session survives.

    What to do: try the call again once; the message says what failed."""

    code = "TRANSPORT_ERROR"


class ConnectFailed(TransportError):
    """Raised by opening a session when nothing answers at the target, or when it is not an ABP server. There is no
    session.

    What to do: start the app or correct the address, then connect again."""

    session_survives = False


class BrowserNotFound(TransportError):
    """Raised by opening a session when no browser was found, or when the one found did not start. There is no session.

    What to do: run ``abp doctor --install``, or name an executable with ``ABP_BROWSER``."""

    code = "BROWSER_ERROR"
    session_survives = False


class ProfileInUse(TransportError):
    """Raised by opening a session when another process has the browser profile open. There is no session.

    What to do: close the other browser, give another ``profile=``, or attach to that browser with ``cdp_url=``."""

    code = "BROWSER_ERROR"
    retryable = True
    session_survives = False

    @classmethod
    def at(cls, folder: object) -> ProfileInUse:
        """Return the error for the profile in ``folder``."""
        return cls(
            f"the profile {folder} is open in another browser process; close that one, give another "
            f"{spelled('profile=')}, or attach to it with {spelled('cdp_url=')}"
        )


class NotAbpApp(TransportError):
    """Raised by opening a session when the page has no ``window.abp``, or one without the functions of the protocol.
    There is no session.

    What to do: check the address: is it the app itself, and not a page that leads to it? Sign in with ``abp login`` if
    the code is ``PERMISSION_REQUIRED``, that of a page that asks to sign in."""

    code = "NOT_SUPPORTED"
    session_survives = False


class DiscoveryFailed(TransportError):
    """Raised by :func:`transports.discover` when a page gave no manifest that can be read; ``details`` holds the
    ``url``. The session survives, if there is one.

    What to do: connect anyway: a manifest is optional."""

    code = "DISCOVERY_FAILED"


class CallTimeout(TransportError):
    """Raised when no answer came within the ``timeout`` of the call. The app has been asked to cancel it, but may have
    done the work. The session survives.

    What to do: give a longer ``timeout``, or call again if the capability may run twice."""

    code = "TIMEOUT"
    retryable = True
    #: Seconds that the request had, if this side has waited for them.
    waited: float | None = None


class OutcomeUnknown(TransportError):
    """Raised when a page or frame navigated while one of its WebMCP tools ran: the work may have been done or not. The
    call is never retried automatically, even if it is idempotent. The session survives, with the tools of the new page.

    What to do: look at the page before you call again."""

    code = "OUTCOME_UNKNOWN"


class ProtocolError(TransportError):
    """Raised when an answer is not valid ABP: unreadable JSON, a missing field, endless nesting. The session survives.

    What to do: correct the app: ``abp conformance`` shows its author which rule is broken."""

    code = "PROTOCOL_ERROR"


class NotRecorded(TransportError):
    """Raised by a replay when a request is not in its recording. The message shows the nearest entry, and
    ``details["diff"]`` the difference. The session survives.

    What to do: correct the test, or record again."""

    code = "NOT_RECORDED"


class BadRecording(TransportError):
    """Raised by opening a replay when the recording cannot be read, or its content is missing. ``details["line"]`` is
    the line at fault, counted from 1. There is no session.

    What to do: record again."""

    code = "BAD_RECORDING"
    session_survives = False


class Disconnected(TransportError):
    """Raised when the app is gone: the connection closed or broke, or the transport was closed during the call. The
    session is over, except on a transport that reconnects (:class:`transports.Features`). ``sent`` is ``False`` if the
    request never left.

    What to do: connect again, and call again if the capability may run twice."""

    code = "DISCONNECTED"
    retryable = True
    session_survives = False


class BrowserCrashed(Disconnected):
    """Raised when the browser or its driver ended during a call. All sessions of that browser are over, except where it
    is restarted for them.

    What to do: connect again; if it happens again, use less memory."""


class PageCrashed(Disconnected):
    """Raised when the process that renders the app's page ended during a call. The page's session is over, except where
    the page is opened again for it; other sessions of the browser go on.

    What to do: connect again; if it happens again, use less memory."""


class ContextLost(Disconnected):
    """Raised when the page navigated or reloaded during a call; the app's state is lost. The session is over, except
    where the transport initializes the new page.

    What to do: call again if the capability may run twice; connect again first if the session is over."""


def format_seconds(seconds: float) -> str:
    """Return a time for a message, in round numbers: ``30 s`` for 29.998, ``1.2 s`` for 1.2304."""
    if 10 <= seconds < float("inf"):
        return f"{seconds:.0f} s"
    two_digits = float(f"{seconds:.2g}")
    return f"{two_digits:g} s"


def first_line(error: BaseException | str) -> str:
    """Return the first line of a foreign error's text, for a message; its class name if it has no text.

    Drivers and SDKs put a call log or a whole page below the first line."""
    line = str(error).strip().partition("\n")[0].rstrip()
    if not line and isinstance(error, BaseException):
        return type(error).__name__
    return line


def may_have_run(error: ABPError) -> bool:
    """Return whether the call that ended with ``error`` may have run: a retry could run it twice."""
    is_answer_lost = isinstance(error, CallTimeout | Disconnected | OutcomeUnknown)
    return is_answer_lost and error.sent is not False


def repeat_advice(error: ABPError) -> str:
    """Return advice on repeating the call that ended with ``error``, for messages and for agents."""
    return "it may have run: look at the app before you call again" if may_have_run(error) else "call again"


def no_answer(request: str, timeout: float) -> CallTimeout:
    """Return the error for a request that was not answered within ``timeout`` seconds.

    ``request`` is its name for people. For a call it is empty or ``capabilities/call``: the session puts the capability
    before the message."""
    sent = None
    message = f"no answer to {request} within {format_seconds(timeout)}"
    if request in ("", "capabilities/call"):
        advice = f"if it takes longer, raise {spelled('timeout=')} (for all calls: ABP_CALL_TIMEOUT, milliseconds)"
        message = f"no answer within {format_seconds(timeout)}; {advice}"
    elif request in ("initialize", "capabilities/list"):
        setting = spelled("connect(timeout=) or ABP_BROWSER_TIMEOUT")
        message += f"; if the app needs longer to start, raise {setting} (milliseconds)"
        sent = False  # the session is not open: there is no call yet
    error = CallTimeout(message, sent=sent)
    error.waited = timeout
    return error


#: Reason of a refused connection, for messages.
NOTHING_LISTENS = "nothing listens there"


def is_refused(error: OSError) -> bool:
    """Return whether nothing listens: every reachable address of the host refused the connection.

    For several addresses, asyncio and aiohttp raise one error without an ``errno``; its text has their codes."""
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    codes = {int(code) for code in re.findall(r"\[Errno (\d+)\]", str(error))}
    unreachable = {errno.EADDRNOTAVAIL, errno.ENETUNREACH}
    return codes - unreachable == {errno.ECONNREFUSED}


def status_phrase(status: int) -> str:
    """Return a status with its reason phrase: ``404 Not Found``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def connection_failure(error: OSError) -> str:
    """Return the reason of a failed connection, for a message."""
    if is_refused(error):
        return NOTHING_LISTENS
    return error.strerror or str(error) or type(error).__name__
