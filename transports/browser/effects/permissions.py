"""Decides in advance what a browser would ask a person about: granted if the caller said so, else denied."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from ...errors import UsageError
from ..page.agent import PageAgent
from ..source import Tab

__all__ = ["check_permissions", "set_permissions"]

#: The names of ``navigator.permissions.query`` (W3C Permissions). Not local-network-access: that one decides whether an
#: app on this machine may load at all.
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
    """Return the names as a set. Raises :class:`~transports.errors.UsageError` for an unknown one."""
    if isinstance(names, str) or (unknown := sorted(set(names) - set(_ASKED))):
        wrong = names if isinstance(names, str) else ", ".join(unknown)
        raise UsageError(f"permissions= takes names of {', '.join(_ASKED)}; not {wrong!r}")
    return frozenset(names)


async def set_permissions(tab: Tab, agent: PageAgent, granted: Collection[str]) -> None:
    """Grant or deny every permission for the page's context, for every origin in it.

    Contexts of the caller or of an attached browser are left as they are. Browsers without CDP cannot do this.
    """
    if tab.borrowed or tab.browser is None or tab.browser.attached or agent.channel.cdp is None:
        return
    from playwright.async_api import Error

    browser = tab.browser.cdp
    context = (await agent.target())["browserContextId"]

    async def decide(permission: dict[str, object], setting: str) -> None:
        with contextlib.suppress(Error):  # an older browser does not know every permission, and never asks for those
            decided = {"permission": permission, "setting": setting, "browserContextId": context}
            await browser.send("Browser.setPermission", decided)

    permissions: list[dict[str, object]] = [{"name": name} for name in _ASKED]
    permissions.append({"name": "midi", "sysex": True})
    await asyncio.gather(*(decide(item, "granted" if item["name"] in granted else "denied") for item in permissions))
