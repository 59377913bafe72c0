"""What a browser would ask a person about: granted if the caller said so, else denied, so that nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

__all__ = ["check_permissions", "set_permissions"]

#: As ``navigator.permissions.query`` has them (W3C Permissions). Not local-network-access: it decides whether an app
#: on this machine may load at all.
_ASKED = (
    "camera",
    "captured-surface-control",
    "clipboard-read",
    "display-capture",
    "geolocation",
    "idle-detection",
    "keyboard-lock",
    "local-fonts",
    "microphone",
    "midi",
    "nfc",
    "notifications",
    "persistent-storage",
    "pointer-lock",
    "storage-access",
    "window-management",
)


def check_permissions(names: Collection[str]) -> frozenset[str]:
    """Raises :class:`~transports.errors.UsageError` for a name that stands for nothing."""
    if isinstance(names, str) or (unknown := sorted(set(names) - set(_ASKED))):
        wrong = names if isinstance(names, str) else ", ".join(unknown)
        raise UsageError(f"permissions= takes names of {', '.join(_ASKED)}; not {wrong!r}")
    return frozenset(names)


async def set_permissions(browser: CDPSession, context_id: str, granted: Collection[str]) -> None:
    """Decide all of them for a browser context, every origin in it."""
    from playwright.async_api import Error

    async def decide(permission: dict[str, object], setting: str) -> None:
        with contextlib.suppress(Error):  # an older browser does not know them all, and asks about none of those
            await browser.send(
                "Browser.setPermission",
                {"permission": permission, "setting": setting, "browserContextId": context_id},
            )

    permissions: list[dict[str, object]] = [{"name": name} for name in _ASKED]
    permissions.append({"name": "midi", "sysex": True})
    await asyncio.gather(*(decide(item, "granted" if item["name"] in granted else "denied") for item in permissions))
