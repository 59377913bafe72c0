"""Client kit for browser apps that speak ABP; every binary result is kept as a verified file.

>>> from transports import connect
>>> async with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})

Names are loaded when they are first used: importing the package loads neither Playwright nor aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._internal.notebook._progress import ProgressBar
    from .artifacts._base import ArtifactStore
    from .artifacts._none import NoneStore
    from .artifacts._opening import open_store
    from .artifacts._ref import ArtifactRef, Scope
    from .artifacts._retention import Retention
    from .artifacts.local._store import LocalStore
    from .base import Features, Transport
    from .errors import (
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
        StoreError,
        StoreFull,
        StoreUnavailable,
        TooLarge,
        TransportError,
        Truncated,
        UnsupportedBinary,
        UrlExpired,
        UsageError,
    )
    from .mcp.views import ViewRequest
    from .memory import MemoryTransport
    from .playwright._browser import Browser
    from .playwright._transport import PlaywrightTransport, WebMcpTransport
    from .postmessage._transport import PostMessageTransport
    from .protocol._capabilities import CapabilitiesChanged
    from .protocol._declarations import Capability
    from .protocol._payloads import ElicitationRequest, Notification, Progress
    from .protocol._strict_json import JSONValue
    from .protocol.binary import BinaryData
    from .protocol.messages import Effect, Message
    from .recording._file import Recording
    from .routing._policy import ObservationClamped, RoutingPolicy
    from .routing._result import Result
    from .routing._router import Router
    from .session._calls import CallHandle, CallStatus
    from .session._connect import connect
    from .session._events import CallFinished, CallStarted, ConnectionChanged, Event, Retrying
    from .session._evidence import Evidence
    from .session._manifest import discover
    from .session._session import Session
    from .session._views import View
    from .websocket._transport import WebSocketTransport

    #: The version of the distribution, ``unknown`` where it is not installed.
    __version__: str
else:
    _load = lazy_names(
        __name__,
        {
            "_internal.notebook._progress": ("ProgressBar",),
            "artifacts._base": ("ArtifactStore",),
            "artifacts._none": ("NoneStore",),
            "artifacts._opening": ("open_store",),
            "artifacts._ref": (
                "ArtifactRef",
                "Scope",
            ),
            "artifacts._retention": ("Retention",),
            "artifacts.local._store": ("LocalStore",),
            "base": (
                "Features",
                "Transport",
            ),
            "errors": (
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
                "TooLarge",
                "TransportError",
                "Truncated",
                "UnsupportedBinary",
                "UrlExpired",
                "UsageError",
            ),
            "mcp.views": ("ViewRequest",),
            "memory": ("MemoryTransport",),
            "playwright._browser": ("Browser",),
            "playwright._transport": ("PlaywrightTransport", "WebMcpTransport"),
            "postmessage._transport": ("PostMessageTransport",),
            "protocol._capabilities": ("CapabilitiesChanged",),
            "protocol._declarations": ("Capability",),
            "protocol._payloads": (
                "ElicitationRequest",
                "Notification",
                "Progress",
            ),
            "protocol._strict_json": ("JSONValue",),
            "protocol.binary": ("BinaryData",),
            "protocol.messages": (
                "Effect",
                "Message",
            ),
            "recording._file": ("Recording",),
            "routing._policy": (
                "ObservationClamped",
                "RoutingPolicy",
            ),
            "routing._result": ("Result",),
            "routing._router": ("Router",),
            "session._calls": (
                "CallHandle",
                "CallStatus",
            ),
            "session._connect": ("connect",),
            "session._events": (
                "CallFinished",
                "CallStarted",
                "ConnectionChanged",
                "Event",
                "Retrying",
            ),
            "session._evidence": ("Evidence",),
            "session._manifest": ("discover",),
            "session._session": ("Session",),
            "session._views": ("View",),
            "websocket._transport": ("WebSocketTransport",),
        },
    )

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from .protocol.messages import (
                package_version,  # looks into the installed distributions: nothing does at a start
            )

            return package_version()
        return _load(name)


__all__ = [
    "ABPError",
    "AddressBlocked",
    "ArtifactNotFound",
    "ArtifactRef",
    "ArtifactStore",
    "BadDescriptor",
    "BadEncoding",
    "BadRecording",
    "BinaryData",
    "BinaryError",
    "Browser",
    "BrowserCrashed",
    "BrowserNotFound",
    "CallFinished",
    "CallHandle",
    "CallStarted",
    "CallStatus",
    "CallTimeout",
    "CapabilitiesChanged",
    "Capability",
    "CapabilityError",
    "ConnectFailed",
    "ConnectionChanged",
    "ContextLost",
    "Corrupt",
    "Disconnected",
    "DiscoveryFailed",
    "DownloadFailed",
    "Effect",
    "ElicitationRequest",
    "EncodingRefused",
    "Event",
    "Evidence",
    "Features",
    "JSONValue",
    "LedgerError",
    "LocalStore",
    "MemoryTransport",
    "Message",
    "NoneStore",
    "NotATable",
    "NotAbpApp",
    "NotRecorded",
    "Notification",
    "ObservationClamped",
    "OutcomeUnknown",
    "PageCrashed",
    "PersonRequired",
    "PlaywrightTransport",
    "PostMessageTransport",
    "ProfileInUse",
    "Progress",
    "ProgressBar",
    "ProtocolError",
    "Recording",
    "RedirectRefused",
    "Result",
    "Retention",
    "Retrying",
    "Router",
    "RoutingPolicy",
    "Scope",
    "Session",
    "SizeMismatch",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TooLarge",
    "Transport",
    "TransportError",
    "Truncated",
    "UnsupportedBinary",
    "UrlExpired",
    "UsageError",
    "View",
    "ViewRequest",
    "WebMcpTransport",
    "WebSocketTransport",
    "connect",
    "discover",
    "open_store",
]


def __dir__() -> list[str]:
    return __all__
