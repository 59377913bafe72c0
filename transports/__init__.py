"""Client kit for browser apps that speak ABP; every binary result is kept as a verified file.

>>> from transports import connect
>>> async with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})

Names are loaded when they are first used: importing the package loads neither Playwright nor aiohttp.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .adapters.memory import MemoryTransport
    from .adapters.playwright import PlaywrightTransport
    from .adapters.postmessage import PostMessageTransport
    from .adapters.recording import Recording
    from .adapters.webmcp import WebMcpTransport
    from .adapters.websocket import WebSocketTransport
    from .artifacts import ArtifactRef, ArtifactStore, LocalStore, NoneStore, Retention, Scope, open_store
    from .base import Features, PageTools, Transport
    from .binary import BinaryData
    from .browser.process.launch import Browser
    from .errors import (
        ABPError,
        BinaryError,
        CallTimeout,
        CapabilityError,
        Disconnected,
        ProtocolError,
        StoreError,
        TransportError,
        UsageError,
    )
    from .http import discover
    from .protocol.capabilities import CapabilitiesChanged
    from .protocol.declarations import Capability
    from .protocol.messages import Effect, Message
    from .protocol.payloads import ElicitationRequest, Notification, Progress
    from .protocol.strict_json import JSONValue
    from .routing import ObservationClamped, Result, Router, RoutingPolicy
    from .session.calls import CallHandle, CallStatus
    from .session.connect import connect
    from .session.events import CallFinished, CallStarted, ConnectionChanged, Event, Retrying
    from .session.evidence import Evidence
    from .session.session import Session

#: Home module of each public name.
_HOMES = {
    "adapters.memory": ("MemoryTransport",),
    "adapters.playwright": ("PlaywrightTransport",),
    "adapters.postmessage": ("PostMessageTransport",),
    "adapters.recording": ("Recording",),
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
    "base": (
        "Features",
        "PageTools",
        "Transport",
    ),
    "binary": ("BinaryData",),
    "browser.process.launch": ("Browser",),
    "errors": (
        "ABPError",
        "BinaryError",
        "CallTimeout",
        "CapabilityError",
        "Disconnected",
        "ProtocolError",
        "StoreError",
        "TransportError",
        "UsageError",
    ),
    "http": ("discover",),
    "protocol.capabilities": ("CapabilitiesChanged",),
    "protocol.declarations": ("Capability",),
    "protocol.messages": (
        "Effect",
        "Message",
    ),
    "protocol.payloads": (
        "ElicitationRequest",
        "Notification",
        "Progress",
    ),
    "protocol.strict_json": ("JSONValue",),
    "routing": (
        "ObservationClamped",
        "Result",
        "Router",
        "RoutingPolicy",
    ),
    "session.connect": ("connect",),
    "session.events": (
        "CallFinished",
        "CallStarted",
        "ConnectionChanged",
        "Event",
        "Retrying",
    ),
    "session.evidence": ("Evidence",),
    "session.calls": (
        "CallHandle",
        "CallStatus",
    ),
    "session.session": ("Session",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ABPError",
    "ArtifactRef",
    "ArtifactStore",
    "BinaryData",
    "BinaryError",
    "Browser",
    "CallFinished",
    "CallHandle",
    "CallStarted",
    "CallStatus",
    "CallTimeout",
    "CapabilitiesChanged",
    "Capability",
    "CapabilityError",
    "ConnectionChanged",
    "Disconnected",
    "Effect",
    "ElicitationRequest",
    "Event",
    "Evidence",
    "Features",
    "JSONValue",
    "LocalStore",
    "MemoryTransport",
    "Message",
    "NoneStore",
    "Notification",
    "ObservationClamped",
    "PageTools",
    "PlaywrightTransport",
    "PostMessageTransport",
    "Progress",
    "ProtocolError",
    "Recording",
    "Result",
    "Retention",
    "Retrying",
    "Router",
    "RoutingPolicy",
    "Scope",
    "Session",
    "StoreError",
    "Transport",
    "TransportError",
    "UsageError",
    "WebMcpTransport",
    "WebSocketTransport",
    "connect",
    "discover",
    "open_store",
]


#: The version of the distribution, ``unknown`` where it is not installed.
__version__: str


if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name of the package

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return importlib.import_module(".protocol.messages", __name__).package_version()
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
