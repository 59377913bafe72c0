"""Choice of the transport for a target, with its options: transports of this kit and of plug-ins."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from .. import playwright
from .._internal.lazy import requiring_extra
from .._internal.plugins import blame_plugin, installed_plugins, load_plugin
from ..base import Transport
from ..errors import UsageError, spelled
from ..playwright._scripts import extension_folder
from ..protocol._plain_text import is_page, redact_url
from ._call import timeout_seconds
from ._settings import Settings

if TYPE_CHECKING:
    from ..playwright._transport import PageProtocol
    from ..protocol._capabilities import Discovery

#: The entry-point group of transports.
GROUP = "abp.transports"
_PAGE_TRANSPORTS = ("playwright", "webmcp", "postmessage")
#: Transports of each scheme; ``auto`` takes the first.
_TRANSPORTS = {"http": _PAGE_TRANSPORTS, "https": _PAGE_TRANSPORTS, "ws": ("websocket",), "wss": ("websocket",)}
_REPLAY = "replay:"
#: An address whose scheme was left out: a host with a port, or this machine.
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+:\d{1,5}|localhost|127\.0\.0\.1)(?:[/?#]|$)")


def is_mcp_server(target: str) -> bool:
    return target.partition(":")[0].lower() in ("mcp", "mcp+stdio", "mcp+http", "mcp+https")


def transport_for(
    target: str,
    name: str,
    *,
    settings: Settings,
    timeout: float | None,
    headless: bool | None,
    sampling: bool,
    browser_options: Mapping[str, Any],
    request_options: Mapping[str, Any],
) -> Transport:
    """Return the transport called ``name``; ``auto`` chooses by the scheme. ``browser_options`` are for pages,
    ``request_options`` (``headers``, ``auth``) for addresses; ``sampling`` is true if there is a handler for questions
    of an MCP server."""
    seconds = timeout_seconds(timeout, settings.browser_timeout)
    if headless is None:
        headless = settings.headless

    if is_mcp_server(target) and name in ("auto", "mcp"):
        pages = _pages_for_views(browser_options, {}, headless, "an MCP server")
        return _mcp_transport(target, seconds, settings, sampling=sampling, views=pages, **request_options)

    plugin = _plugin_transport(target, name, seconds)
    if plugin is not None:
        reject_options({**browser_options, **request_options}, "the transport of another distribution")
        return plugin

    names = _transport_names(target)
    if name not in ("auto", *names):
        raise UsageError(_unfit_transport_message(target, name, names))
    chosen_name = names[0] if name == "auto" else name

    if chosen_name == "replay":
        return _replay_transport(target, browser_options, request_options, headless)
    if chosen_name == "websocket":
        reject_options(browser_options, "an app behind a WebSocket, which needs no browser")
        return _websocket_transport(target, seconds, settings, request_options)

    # Headers are for the server that runs the browser; a page itself takes none.
    if browser_options.keys() & {"cdp_url", "browser_server"}:
        browser_options = {**browser_options, **_select_options(request_options, "headers")}
        request_options = _select_options(request_options, "auth")
    reject_options(request_options, f"a page; sign in with {spelled('storage_state=')} or {spelled('profile=')}")
    return _page_transport(target, name, chosen_name, {"headless": headless, "timeout": seconds, **browser_options})


def _websocket_transport(
    target: str, timeout: float, settings: Settings, request_options: Mapping[str, Any]
) -> Transport:
    reject_options(_select_options(request_options, "auth"), f"a WebSocket; give {spelled('headers=')}")
    from ..websocket._transport import WebSocketTransport

    return WebSocketTransport(target, timeout=timeout, max_bytes=settings.max_message_bytes, **request_options)


def _page_transport(target: str, name: str, chosen: str, options: Mapping[str, Any]) -> Transport:
    """Return the ``chosen`` transport of a page. ``name`` is what the caller asked for: ``auto`` takes any page."""
    if chosen == "postmessage":
        reject_options(_select_options(options, "page", "extension_page", "adapter"), "an embedded app")
        from ..postmessage._transport import PostMessageTransport

        return PostMessageTransport(target, **options)
    if chosen == "webmcp":
        return playwright.WebMcpTransport(target, **options)
    protocol: PageProtocol = "auto" if name == "auto" else "abp"
    return playwright.PlaywrightTransport(target, protocol=protocol, **options)


def _replay_transport(
    target: str, browser_options: Mapping[str, Any], request_options: Mapping[str, Any], headless: bool
) -> Transport:
    from ..recording._replay import ReplayTransport

    replay = ReplayTransport(target[len(_REPLAY) :])
    if replay.has_views:
        replay.views = _pages_for_views(browser_options, request_options, headless, "a recording")
    else:
        reject_options({**browser_options, **request_options}, "a recording, which needs no browser")
    return replay


def discovery_for(target: str, transport: Transport, settings: Settings) -> Callable[[], Awaitable[Discovery]] | None:
    """Return a function that searches the manifest of a page (docs/protocol.md 7.1) or of a recorded page; ``None`` for
    other targets, which have no manifest."""
    if target.lower().startswith(_REPLAY):
        from ..recording._replay import ReplayTransport

        return transport.discovering() if isinstance(transport, ReplayTransport) else None
    if not is_page(target):
        return None
    return partial(_discover, target, settings)


async def _discover(target: str, settings: Settings) -> Discovery:
    from ._manifest import discover  # late: it parses HTML and URLs

    return await discover(target, allow_private=settings.allow_private_addresses)


def _pages_for_views(
    browser_options: Mapping[str, Any], request_options: Mapping[str, Any], headless: bool, whose: str
) -> playwright.PageSource:
    options: dict[str, Any] = _select_options(browser_options, "browser", "context", "cdp_url", "browser_server")
    others = {name: value for name, value in browser_options.items() if name not in options} | {**request_options}
    reject_options(others, f"{whose}, whose views have pages of their own")
    return playwright.PageSource(**options, headless=headless)


def takes_browser(target: str, transport: str = "auto") -> bool:
    """Return whether sessions with an address can share a browser; for names see
    :func:`._named_apps.shares_browser`."""
    scheme = target.partition("://")[0].lower()
    is_page_address = _TRANSPORTS.get(scheme) is _PAGE_TRANSPORTS
    return is_page_address and transport in ("auto", *_PAGE_TRANSPORTS)


def reject_options(options: Mapping[str, object], reason: str) -> None:
    if options:
        raise UsageError(f"{', '.join(spelled(f'{option}=') for option in options)} cannot be combined with {reason}")


def _select_options(options: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in options.items() if name in names}


def _mcp_transport(target: str, seconds: float, settings: Settings, **options: Any) -> Transport:
    try:
        with requiring_extra("the MCP SDK", "mcp"):
            from ..mcp._transport import MCPTransport
    except ImportError as error:
        raise UsageError(f"an MCP server: {error}") from error
    return MCPTransport(target, timeout=seconds, max_bytes=settings.max_message_bytes, **options)


def _plugin_transport(target: str, name: str, seconds: float) -> Transport | None:
    """Return the plug-in's transport called ``name``, for ``auto`` the one called as the scheme of the target. ``None``
    means that the name or the scheme belongs to this kit, or to no plug-in."""
    if name == "auto":
        scheme, separator, _ = target.lower().partition("://")
        if not scheme or not separator or scheme in _TRANSPORTS:
            return None
        name = scheme
    elif any(name in names for names in _TRANSPORTS.values()):
        return None

    plugin = load_plugin(GROUP, name, "transport")
    if plugin is None:
        return None
    with blame_plugin(plugin.label):
        transport = cast(Callable[..., object], plugin.value)(target, timeout=seconds)
    if not isinstance(transport, Transport):
        kind = type(transport).__name__
        raise UsageError(f"{plugin.label} made a {kind}, not a transports.Transport; please report it")
    return transport


def _transport_names(target: str) -> tuple[str, ...]:
    """Return the names of the transports for ``target``; ``auto`` takes the first."""
    if extension_folder(target) is not None:
        return ("playwright",)
    if target.lower().startswith(_REPLAY):
        return ("replay",)
    try:
        parts = urlsplit(target)
        if parts.scheme in _TRANSPORTS and parts.hostname and parts.port != 0:
            return _TRANSPORTS[parts.scheme]
    except ValueError:  # http://[, a port of 99999 and the like
        pass
    raise UsageError(f"{redact_url(target)!r} is not a target; {_target_advice(target)}")


def _target_advice(target: str) -> str:
    if _HOST_AND_PORT.match(target):
        return f"did you mean {redact_url(f'http://{target}')}?"

    plugins = "".join(f", or a target of {name}" for name in installed_plugins(GROUP))
    no_app = ""
    if re.fullmatch(r"[\w-]{1,64}", target):
        no_app = f"; no app is called {target!r} in the settings file ([apps.NAME])"
    return (
        "give the app's address, such as http://127.0.0.1:8000/ or ws://127.0.0.1:8000/abp, the folder of a Chrome "
        f"extension, an MCP server (mcp+stdio:COMMAND), or replay:FILE{plugins}; a page in a file has to be served, "
        f"as by `python -m http.server --bind 127.0.0.1`{no_app}"
    )


def _unfit_transport_message(target: str, name: str, names: tuple[str, ...]) -> str:
    scheme, separator, _ = target.partition("://")
    kind = f"{scheme}://" if separator else "this target"
    message = f"unknown transport {name!r} for {kind}; use {' or '.join(map(repr, names))}"
    if is_page(target):
        message += f"; ws:// addresses need no {spelled('transport=')}"
    return message
