"""The SDK's server as the bridge needs it, and what it says of itself."""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

__all__ = ["SdkServer", "instructions"]

_INSTRUCTIONS = (
    "Web apps that speak ABP, as tools. Connect one with abp_connect; its capabilities become tools of their own. "
    "Whatever a call produces is stored, and the answer says where."
)
_FILE_INSTRUCTIONS = (
    " Read an artifact only if you need its content, in slices with abp_read_artifact. Pass artifacts on to other "
    "calls by their id, in `files`."
)


class SdkServer(Server[None]):
    """A low-level server whose lists change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> InitializationOptions:
        """Declare on every transport that lists change; the SDK leaves that to each transport."""
        changing = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
        return super().create_initialization_options(notification_options or changing, *args, **more)


def instructions(*, files: bool, retention: object) -> str:
    """Return what a client tells its model of the bridge: with ``files`` how to handle them, and how long they stay."""
    text = _INSTRUCTIONS + (_FILE_INSTRUCTIONS if files else "")
    return f"{text} Each artifact is {retention}." if retention else text
