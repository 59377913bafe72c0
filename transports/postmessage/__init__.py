"""The iframe transport: an app embedded in a page of the kit, driven by messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._transport import PostMessageTransport as PostMessageTransport
else:
    __getattr__ = lazy_names(__name__, {"_transport": ("PostMessageTransport",)})
