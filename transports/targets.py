"""Targets: which transport reaches what, and :func:`connect`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from .artifacts import ArtifactStore, open_store
from .base import Transport
from .discovery import Discovery, discover
from .errors import UsageError, redact_url
from .inbox import OnElicitation, OnNotification, OnProgress
from .plugins import installed, make_transport
from .session import Session, seconds_of
from .settings import Settings

__all__ = ["connect"]

_PAGE = ("playwright", "postmessage")
#: The ways to reach a target, by scheme; the first is ``auto``.
_TRANSPORTS = {"http": _PAGE, "https": _PAGE, "ws": ("websocket",), "wss": ("websocket",)}


def connect(
    target: str,
    *,
    transport: str | Transport = "auto",
    store: ArtifactStore | str | Path | None = None,
    headless: bool | None = None,
    timeout: float | None = None,
    on_progress: OnProgress | None = None,
    on_notification: OnNotification | None = None,
    on_elicitation: OnElicitation | None = None,
    requested_capabilities: Sequence[str] = (),
) -> Session:
    """A session with the app at ``target``, to be used as ``async with connect(…) as app``.

    ``target`` is an ``http(s)://`` address (a page, driven in a browser) or a ``ws(s)://`` one (an app behind a
    WebSocket). ``transport`` is a name or an instance; ``"postmessage"`` embeds an ``http(s)`` app in an iframe.
    ``store`` is a store or its URL; the default is ``ABP_STORE``, else the folder ``ABP_OUTPUT_DIR``. ``timeout`` in
    seconds is for connecting (``ABP_BROWSER_TIMEOUT``) and, where a call gives none, for calls (``ABP_CALL_TIMEOUT``).

    Callbacks are plain or coroutine functions. An elicitation handler returns ``{"success": True, "data": {…}}``, or
    raises to decline; without one a question is answered with the default that the app itself names, else declined, and
    a destructive one never with yes. ``requested_capabilities`` are names that the app is told when it is greeted.

    Raises :class:`~transports.errors.UsageError` for a target or option that makes no sense; opening raises
    :class:`~transports.errors.TransportError`.

    Other schemes, and other names for ``transport``, are those of plug-ins (:mod:`transports.plugins`).
    """
    settings = Settings.load()
    return Session(
        transport
        if isinstance(transport, Transport)
        else _make_transport(target, transport, headless, timeout, settings),
        store=store if isinstance(store, ArtifactStore) else _open_store(store, settings),
        settings=settings,
        timeout=timeout,
        on_progress=on_progress,
        on_notification=on_notification,
        on_elicitation=on_elicitation,
        requested_capabilities=requested_capabilities,
        discover=_discovery(target, settings),
    )


def _discovery(target: str, settings: Settings) -> Callable[[], Awaitable[Discovery]] | None:
    """Only a page has a manifest (PROTOCOL "Discovery")."""
    if not target.lower().startswith(("http://", "https://")):
        return None
    return partial(discover, target, allow_private=settings.allow_private_addresses)


def _open_store(store: str | Path | None, settings: Settings) -> ArtifactStore:
    try:
        return open_store(store or settings.store or settings.output_dir, max_bytes=settings.max_artifact_bytes)
    except UsageError as error:
        raise error if store else UsageError(f"ABP_STORE: {error.message}") from None


def _plugged(target: str, name: str, seconds: float) -> Transport | None:
    """The transport of another distribution, where the name or else the scheme is none of ours."""
    scheme = target.partition("://")[0].lower() if "://" in target else ""
    ours = {"auto", *(way for ways in _TRANSPORTS.values() for way in ways)}
    wanted = name if name not in ours else scheme if name == "auto" and scheme not in _TRANSPORTS else ""
    return make_transport(wanted, target, timeout=seconds) if wanted else None


def _make_transport(
    target: str, name: str, headless: bool | None, timeout: float | None, settings: Settings
) -> Transport:
    if (made := _plugged(target, name, seconds_of(timeout, settings.browser_timeout))) is not None:
        return made
    try:
        parts = urlsplit(target)
        known = parts.scheme in _TRANSPORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # http://[, a port of 99999 and the like
        known = False
    if not known:
        also = "".join(f", or a target of {plugin.name}" for plugin in installed())
        raise UsageError(
            f"{redact_url(target)!r} is no target; give the app's address, such as http://127.0.0.1:8000/ or "
            f"ws://127.0.0.1:8000/abp{also}"
        )
    ways = _TRANSPORTS[parts.scheme]
    if name not in ("auto", *ways):
        raise UsageError(f"no transport is called {name!r}; for {parts.scheme}:// there is {' or '.join(ways)}")
    chosen = ways[0] if name == "auto" else name
    seconds = seconds_of(timeout, settings.browser_timeout)
    if chosen == "websocket":
        from .adapters.websocket import WebSocketTransport

        return WebSocketTransport(target, timeout=seconds, max_bytes=settings.max_message_bytes)
    unseen = settings.headless if headless is None else headless
    if chosen == "postmessage":
        from .adapters.postmessage import PostMessageTransport

        return PostMessageTransport(target, headless=unseen, timeout=seconds)
    from .adapters.playwright import PlaywrightTransport

    return PlaywrightTransport(target, headless=unseen, timeout=seconds)
