"""Drive browser apps that speak ABP, and keep every binary result as a verified file.

>>> from transports import connect
>>> async with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})

Names are loaded when they are first used: importing the package loads neither Playwright nor aiohttp.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .adapters.memory import Call, MemoryTransport
    from .adapters.playwright import PlaywrightTransport
    from .adapters.postmessage import PostMessageTransport
    from .adapters.websocket import WebSocketTransport
    from .artifacts import ArtifactRef, ArtifactStore, LocalStore, NoneStore, open_store
    from .base import Features, Transport
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
    from .protocol.capabilities import CapabilitiesChanged
    from .protocol.messages import Capability, Effect, ElicitationRequest, JSONValue, Message, Notification, Progress
    from .routing import Result, Router
    from .session.connect import connect
    from .session.events import CallFinished, CallStarted, ConnectionChanged, Event, Retrying
    from .session.session import Session

_HOMES = {
    "adapters.memory": ("Call", "MemoryTransport"),
    "adapters.playwright": ("PlaywrightTransport",),
    "adapters.postmessage": ("PostMessageTransport",),
    "adapters.websocket": ("WebSocketTransport",),
    "artifacts": ("ArtifactRef", "ArtifactStore", "LocalStore", "NoneStore", "open_store"),
    "base": ("Features", "Transport"),
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
    "session.events": ("CallFinished", "CallStarted", "ConnectionChanged", "Event", "Retrying"),
    "protocol.capabilities": ("CapabilitiesChanged",),
    "protocol.messages": (
        "Capability",
        "Effect",
        "ElicitationRequest",
        "JSONValue",
        "Message",
        "Notification",
        "Progress",
    ),
    "routing": ("Result", "Router"),
    "session.session": ("Session",),
    "session.connect": ("connect",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ABPError",
    "ArtifactRef",
    "ArtifactStore",
    "BinaryData",
    "BinaryError",
    "Browser",
    "Call",
    "CallFinished",
    "CallStarted",
    "CallTimeout",
    "CapabilitiesChanged",
    "Capability",
    "CapabilityError",
    "ConnectionChanged",
    "Disconnected",
    "Effect",
    "ElicitationRequest",
    "Event",
    "Features",
    "JSONValue",
    "LocalStore",
    "MemoryTransport",
    "Message",
    "NoneStore",
    "Notification",
    "PlaywrightTransport",
    "PostMessageTransport",
    "Progress",
    "ProtocolError",
    "Result",
    "Retrying",
    "Router",
    "Session",
    "StoreError",
    "Transport",
    "TransportError",
    "UsageError",
    "WebSocketTransport",
    "connect",
    "open_store",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
