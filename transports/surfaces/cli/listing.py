"""Capabilities as people read them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .outcome import out

if TYPE_CHECKING:
    from ...messages import AppInfo, Capability

__all__ = ["print_capabilities"]


def print_capabilities(app: AppInfo, capabilities: Collection[Capability]) -> None:
    """One line for the app, one for each capability."""
    out(f"{app.name} {app.version} ({app.id})")
    width = max((len(capability.name) for capability in capabilities), default=0)
    for capability in capabilities:
        marks = "" if capability.available else " [unavailable]"
        marks += " [experimental]" * capability.experimental + " [deprecated]" * capability.deprecated
        out(f"  {capability.name:<{width}}  {capability.description}{marks}")
