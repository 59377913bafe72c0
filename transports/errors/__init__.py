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
"""

from __future__ import annotations

from ._arguments import replaced_arguments as replaced_arguments, spelled as spelled
from ._base import (
    NOTHING_LISTENS as NOTHING_LISTENS,
    ABPError,
    AddressBlocked,
    ArtifactNotFound,
    BadDescriptor,
    BadEncoding,
    BadRecording,
    BinaryError,
    BrowserCrashed,
    BrowserNotFound,
    CallTimeout,
    CapabilityError,
    ConnectFailed,
    ContextLost,
    Corrupt,
    Disconnected,
    DiscoveryFailed,
    DownloadFailed,
    EncodingRefused,
    LedgerError,
    NotAbpApp,
    NotATable,
    NotRecorded,
    OutcomeUnknown,
    PageCrashed,
    PersonRequired,
    ProfileInUse,
    ProtocolError,
    RedirectRefused,
    SizeMismatch,
    StoredFile,
    StoredPart,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooLarge,
    TransportError,
    Truncated,
    UnsupportedBinary,
    UrlExpired,
    UsageError,
    connection_failure as connection_failure,
    first_line,
    format_seconds,
    is_refused as is_refused,
    may_have_run as may_have_run,
    no_answer,
    repeat_advice as repeat_advice,
    status_phrase as status_phrase,
)
from ._decorators import (
    callers_traceback as callers_traceback,
    checked as checked,
    checked_fields as checked_fields,
    short_traceback as short_traceback,
    shortened as shortened,
)

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

for _name in __all__:  # tracebacks and pickles name the module that callers import from
    if isinstance(_class := globals()[_name], type):
        _class.__module__ = __name__
