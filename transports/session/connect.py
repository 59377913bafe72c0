"""Targets: which transport reaches what, and :func:`connect`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..adapters.recording import Recording, recording_of
from ..artifacts import ArtifactStore, HostFacade, HostStore, discover_store, open_store
from ..base import Transport
from ..browser.process.extension import extension_folder
from ..errors import UsageError
from ..http import Discovery, discover
from ..protocol.urls import redact_url
from ..routing import RoutingPolicy
from .inbox import OnElicitation, OnNotification, OnProgress
from .plugins import installed, make_transport
from .session import Session, seconds_of
from .settings import Settings

if TYPE_CHECKING:
    from httpx2 import Auth
    from playwright.async_api import BrowserContext, Page

    from ..browser.process.launch import Browser
    from ..browser.source import StorageState

__all__ = ["connect"]

_PAGE = ("playwright", "postmessage")
#: The ways to reach a target, by scheme; the first is ``auto``.
_TRANSPORTS = {"http": _PAGE, "https": _PAGE, "ws": ("websocket",), "wss": ("websocket",)}
_REPLAY = "replay:"
#: Schemes of MCP servers (:mod:`transports.adapters.mcp.servers`).
_MCP = ("mcp", "mcp+stdio", "mcp+http", "mcp+https")


def connect(
    target: str,
    *,
    transport: str | Transport = "auto",
    store: ArtifactStore | HostStore | HostFacade | str | Path | None = None,
    headless: bool | None = None,
    browser: Browser | str | None = None,
    profile: str | Path | None = None,
    storage_state: StorageState | None = None,
    cdp_url: str | None = None,
    page: Page | None = None,
    context: BrowserContext | None = None,
    extension_page: str | None = None,
    headers: Mapping[str, str] | None = None,
    auth: Auth | None = None,
    timeout: float | None = None,
    on_progress: OnProgress | None = None,
    on_notification: OnNotification | None = None,
    on_elicitation: OnElicitation | None = None,
    requested_capabilities: Sequence[str] = (),
    routing: RoutingPolicy | None = None,
    record: Recording | str | Path | None = None,
) -> Session:
    """A session with the app at ``target``, to be used as ``async with connect(…) as app``.

    ``target`` is an ``http(s)://`` address (a page, driven in a browser), a ``ws(s)://`` one (an app behind a
    WebSocket), a Chrome extension (``extension:FOLDER``, or a folder with a ``manifest.json``), an MCP server
    (``mcp+stdio:COMMAND ARG …``, ``mcp+http(s)://…``, ``mcp:FILE#NAME``), or ``replay:FILE``, a conversation that was
    recorded. ``transport`` is a name or an instance; ``"postmessage"`` embeds an ``http(s)`` app in an iframe.
    ``store`` is a store, its URL, a host's own store, or an object that has one (``artifact_store``, ``artifacts``);
    the default is ``ABP_STORE``, else the folder ``ABP_OUTPUT_DIR``. A store that is given stays open when the session
    closes.
    ``timeout`` in seconds is for connecting (``ABP_BROWSER_TIMEOUT``) and, where a call gives none, for calls
    (``ABP_CALL_TIMEOUT``).

    For pages: ``browser`` is ``"chromium"``, ``"chrome"``, ``"msedge"``, ``"firefox"`` or ``"webkit"``, or a running
    :class:`~transports.Browser` to share; ``profile`` a folder that keeps what a user is signed in to;
    ``storage_state`` cookies and storage to begin with, or a file of them; ``cdp_url`` a running Chromium to attach to;
    ``page`` and ``context`` the caller's own, of ``playwright.async_api``; ``extension_page`` the page of an extension
    that speaks ABP. See :class:`~transports.PlaywrightTransport`.

    For WebSockets and MCP servers behind an address: ``headers`` go with what is sent, and are never shown. For the
    latter, ``auth`` is an ``httpx2.Auth``, such as the MCP SDK's ``OAuthClientProvider``.

    Callbacks are plain or coroutine functions. An elicitation handler returns ``{"success": True, "data": {…}}``, or
    raises to decline; without one a question is answered with the default that the app itself names, else declined, and
    a destructive one never with yes. ``requested_capabilities`` are names that the app is told when it is greeted;
    ``routing`` says what becomes of an answer's parts (:class:`~transports.RoutingPolicy`). ``record`` is a
    file that the conversation is written to, without secrets, or a :class:`~transports.Recording` that names
    more of those.

    Raises :class:`~transports.errors.UsageError` for a target or option that makes no sense; opening raises
    :class:`~transports.errors.TransportError`.

    Other schemes, and other names for ``transport``, are those of plug-ins (:mod:`transports.session.plugins`).
    """
    settings = Settings.load()
    where: dict[str, Any] = {
        "browser": browser,
        "profile": profile,
        "storage_state": storage_state,
        "cdp_url": cdp_url,
        "page": page,
        "context": context,
        "extension_page": extension_page,
    }
    where = {option: value for option, value in where.items() if value is not None}
    sent = {option: value for option, value in (("headers", headers), ("auth", auth)) if value is not None}
    if isinstance(transport, Transport):
        _refuse(where | sent, "a transport that is made already; give them to it")
    elif target.partition(":")[0].lower() in _MCP and transport in ("auto", "mcp"):
        _refuse(where, "an MCP server, which needs no browser")
        transport = _mcp(target, timeout, settings, sampling=on_elicitation is not None, **sent)
    else:
        transport = _make_transport(target, transport, headless, timeout, settings, where, sent)
    discovering = _discovery(target, transport, settings)
    if record is not None:
        transport = recorder = recording_of(transport, record if isinstance(record, Recording) else Recording(record))
        discovering = recorder.discovering(discovering) if discovering else None
    return Session(
        transport,
        store=_open_store(store, settings),
        settings=settings,
        timeout=timeout,
        on_progress=on_progress,
        on_notification=on_notification,
        on_elicitation=on_elicitation,
        requested_capabilities=requested_capabilities,
        routing=routing,
        discover=discovering,
        close_store=store is None or isinstance(store, str | Path),
    )


def _mcp(target: str, timeout: float | None, settings: Settings, **options: Any) -> Transport:
    seconds = seconds_of(timeout, settings.browser_timeout)
    try:
        from ..adapters.mcp import MCPTransport
    except ImportError as error:
        raise UsageError(
            f"MCP servers need the MCP SDK ({error}); install it: pip install 'abp-transports[mcp]'"
        ) from error
    return MCPTransport(target, timeout=seconds, max_bytes=settings.max_message_bytes, **options)


def _discovery(target: str, transport: Transport, settings: Settings) -> Callable[[], Awaitable[Discovery]] | None:
    """Only a page has a manifest (PROTOCOL "Discovery"), or what was recorded of one."""
    if target.lower().startswith(_REPLAY):
        from ..adapters.recording.replay import ReplayTransport

        return transport.discovering() if isinstance(transport, ReplayTransport) else None
    if not target.lower().startswith(("http://", "https://")):
        return None
    return partial(discover, target, allow_private=settings.allow_private_addresses)


def _open_store(store: object, settings: Settings) -> ArtifactStore:
    if store is not None and not isinstance(store, str | Path):
        found = discover_store(store, max_bytes=settings.max_artifact_bytes)
        if found is None:
            raise UsageError(f"store= takes a store, its URL, or an object that has one, not a {type(store).__name__}")
        return found
    try:
        return open_store(
            store or settings.store or settings.output_dir,
            max_bytes=settings.max_artifact_bytes,
            audit=settings.audit_log,
        )
    except UsageError as error:
        raise error if store else UsageError(f"ABP_STORE: {error.message}") from None


def _plugged(target: str, name: str, seconds: float) -> Transport | None:
    """The transport of another distribution, where the name or else the scheme is none of ours."""
    scheme = target.partition("://")[0].lower() if "://" in target else ""
    ours = {"auto", *(way for ways in _TRANSPORTS.values() for way in ways)}
    wanted = name if name not in ours else scheme if name == "auto" and scheme not in _TRANSPORTS else ""
    return make_transport(wanted, target, timeout=seconds) if wanted else None


def _refuse(where: Mapping[str, object], reason: str) -> None:
    if where:
        raise UsageError(f"{', '.join(f'{option}=' for option in where)} cannot go with {reason}")


def _ways(target: str) -> tuple[str, ...]:
    """The names of the transports that reach ``target``, the first of which is ``auto``."""
    if extension_folder(target) is not None:
        return ("playwright",)
    if target.lower().startswith(_REPLAY):
        return ("replay",)
    try:
        parts = urlsplit(target)
        known = parts.scheme in _TRANSPORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # http://[, a port of 99999 and the like
        known = False
    if not known:
        also = "".join(f", or a target of {plugin.name}" for plugin in installed())
        raise UsageError(
            f"{redact_url(target)!r} is no target; give the app's address, such as http://127.0.0.1:8000/ or "
            f"ws://127.0.0.1:8000/abp, the folder of a Chrome extension, an MCP server (mcp+stdio:COMMAND), or "
            f"replay:FILE{also}"
        )
    return _TRANSPORTS[parts.scheme]


def _make_transport(
    target: str,
    name: str,
    headless: bool | None,
    timeout: float | None,
    settings: Settings,
    where: dict[str, Any],
    sent: dict[str, Any],
) -> Transport:
    seconds = seconds_of(timeout, settings.browser_timeout)
    if (made := _plugged(target, name, seconds)) is not None:
        _refuse(where | sent, "the transport of another distribution")
        return made
    ways = _ways(target)
    if name not in ("auto", *ways):
        kind = f"{target.partition('://')[0]}://" if "://" in target else "this target"
        raise UsageError(f"no transport is called {name!r}; for {kind} there is {' or '.join(map(repr, ways))}")
    chosen = ways[0] if name == "auto" else name
    if chosen == "replay":
        from ..adapters.recording.replay import replay_of

        _refuse(where | sent, "a recording, which needs no browser")
        return replay_of(target[len(_REPLAY) :])
    if chosen == "websocket":
        from ..adapters.websocket import WebSocketTransport

        _refuse(where, "an app behind a WebSocket, which needs no browser")
        _refuse({option: sent[option] for option in sent if option == "auth"}, "a WebSocket; give headers=")
        return WebSocketTransport(target, timeout=seconds, max_bytes=settings.max_message_bytes, **sent)
    _refuse(sent, "a page; sign in with storage_state= or profile=")
    unseen = settings.headless if headless is None else headless
    if chosen == "postmessage":
        from ..adapters.postmessage import PostMessageTransport

        taken = {option: value for option, value in where.items() if option in ("page", "extension_page")}
        _refuse(taken, "an app that is embedded in a page of ours")
        return PostMessageTransport(target, headless=unseen, timeout=seconds, **where)
    from ..adapters.playwright import PlaywrightTransport

    return PlaywrightTransport(target, headless=unseen, timeout=seconds, **where)
