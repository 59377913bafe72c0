"""What a check may do, and how the app is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from ...browser.process.extension import extension_folder
from ...errors import UsageError
from ...protocol.urls import is_page
from ...session.settings import Settings
from .evidence import Kind

__all__ = ["Plan", "kind_of"]


class Plan:
    """What a check may do.

    ``timeout`` in seconds is what each call is given. ``only`` and ``skip`` are patterns (``export.*``) of the
    capabilities to call and to leave out; with ``calls=False`` none is called. ``on_step`` is called with the name of
    what is checked next: ``session``, a capability.
    """

    def __init__(
        self,
        *,
        timeout: float = 5.0,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        calls: bool = True,
        on_step: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.timeout, self.only, self.skip, self.calls, self.on_step = timeout, only, skip, calls, on_step
        #: Whether downloads may go to private addresses (``ABP_ALLOW_PRIVATE_ADDRESSES``).
        self.allow_private = Settings.load().allow_private_addresses

    def excluded(self, name: str) -> str:
        """Return why a capability is not to be called, or an empty text if it is."""
        if not self.calls:
            return "no capability was to be called"
        if self.only and not _matches(name, self.only):
            return "only others were to be called"
        return "it was to be skipped" if _matches(name, self.skip) else ""


def kind_of(target: str, transport: str) -> Kind:
    """Return how ``target`` is reached; a ``"page"`` may turn out to have tools only (``"webmcp"``). Raises
    :class:`~transports.errors.UsageError` for a target that is no app, or that ``transport`` does not reach."""
    if extension_folder(target) is not None:
        found: Kind = "extension"
    elif target.lower().startswith(("ws://", "wss://")):
        found = "websocket"
    elif is_page(target):
        found = {"postmessage": "embedded", "webmcp": "webmcp"}.get(transport, "page")  # type: ignore[assignment]
    else:
        raise UsageError(
            f"{target!r} is no app; give http(s)://…, ws(s)://… or extension:FOLDER; a file has to be served"
        )
    names = {"page": "playwright", "extension": "playwright", "embedded": "postmessage", "websocket": "websocket"}
    names["webmcp"] = "webmcp"
    if transport not in ("auto", names[found]):
        raise UsageError(
            f"{target!r} cannot be reached by {transport!r}; leave --transport out, or say {names[found]!r}"
        )
    return found


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
