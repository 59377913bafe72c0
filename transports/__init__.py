"""Client kit for browser apps that speak ABP; every binary result is kept as a verified file.

>>> from transports import connect
>>> async with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})

Names are loaded when they are first used: importing the package loads neither Playwright nor aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_names

if TYPE_CHECKING:
    from .adapters.memory import MemoryTransport
    from .adapters.playwright import PlaywrightTransport
    from .adapters.postmessage import PostMessageTransport
    from .adapters.recording import Recording
    from .adapters.views import ViewRequest
    from .adapters.webmcp import WebMcpTransport
    from .adapters.websocket import WebSocketTransport
    from .artifacts import ArtifactRef, ArtifactStore, LocalStore, NoneStore, Retention, Scope, open_store
    from .base import Features, PageTools, Transport
    from .binary import BinaryData
    from .browser import Browser
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
    from .http import discover
    from .notebook import ProgressBar
    from .protocol import CapabilitiesChanged, Capability, ElicitationRequest, JSONValue, Notification, Progress
    from .protocol.messages import Effect, Message
    from .routing import ObservationClamped, Result, Router, RoutingPolicy
    from .session import (
        CallFinished,
        CallHandle,
        CallStarted,
        CallStatus,
        ConnectionChanged,
        Event,
        Evidence,
        Retrying,
        Session,
        View,
        connect,
    )

    #: The version of the distribution, ``unknown`` where it is not installed.
    __version__: str
else:
    _load = lazy_names(
        __name__,
        {
            "adapters.memory": ("MemoryTransport",),
            "adapters.playwright": ("PlaywrightTransport",),
            "adapters.postmessage": ("PostMessageTransport",),
            "adapters.recording": ("Recording",),
            "adapters.views": ("ViewRequest",),
            "adapters.webmcp": ("WebMcpTransport",),
            "adapters.websocket": ("WebSocketTransport",),
            "artifacts": (
                "ArtifactRef",
                "ArtifactStore",
                "LocalStore",
                "NoneStore",
                "Retention",
                "Scope",
                "open_store",
            ),
            "base": ("Features", "PageTools", "Transport"),
            "binary": ("BinaryData",),
            "browser": ("Browser",),
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
            "http": ("discover",),
            "notebook": ("ProgressBar",),
            "protocol": (
                "CapabilitiesChanged",
                "Capability",
                "ElicitationRequest",
                "JSONValue",
                "Notification",
                "Progress",
            ),
            "protocol.messages": ("Effect", "Message"),
            "routing": ("ObservationClamped", "Result", "Router", "RoutingPolicy"),
            "session": (
                "CallFinished",
                "CallHandle",
                "CallStarted",
                "CallStatus",
                "ConnectionChanged",
                "Event",
                "Evidence",
                "Retrying",
                "Session",
                "View",
                "connect",
            ),
        },
    )

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from .protocol.messages import (
                package_version,
            )  # looks into the installed distributions: nothing does at a start

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
    "PageTools",
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
