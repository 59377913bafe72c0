"""The function :func:`connect`: a session for a target, a transport, a store and their options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from .. import playwright as browsers
from .._internal.arguments import showing_options, validate_arguments
from .._internal.telemetry import use_global_providers
from ..artifacts._base import ArtifactStore
from ..artifacts._hosts import FromHost
from ..artifacts._opening import discover_store
from ..base import Transport
from ..errors import ABPError, UsageError, spelled
from ..routing._policy import RoutingConfig, RoutingPolicy, named_preset
from ._call import OnProgress
from ._dispatch import OnElicitation, OnNotification
from ._evidence import Evidence, GeneralEvidence, evidence_for
from ._named_apps import NamedApp, find_app, secrets_for
from ._secrets import Guard, Guarded, Secrets
from ._session import Session
from ._settings import ConfigFile, Settings, read_config, retention_settings, routing_of
from ._stores import open_configured_store
from ._targets import discovery_for, reject_options, transport_for

#: Function that makes a transport, with these values in the place of its options that hold secrets.
MakeTransport: TypeAlias = Callable[[Mapping[str, object]], Transport]

if TYPE_CHECKING:
    from httpx2 import Auth
    from playwright.async_api import BrowserContext, Page

    from ..playwright._browser import Browser
    from ..protocol._capabilities import Discovery
    from ..recording._file import Recording
    from ..recording._recorder import Recorder


class CommonOptions(TypedDict, total=False):
    """Options of :func:`connect` and of its blocking namesake."""

    transport: str | Transport
    headless: bool | None
    profile: str | Path | None
    storage_state: browsers.StorageState | None
    cdp_url: str | None
    browser_server: str | None
    extension_page: str | None
    adapter: str | Path | None
    headers: Mapping[str, str] | None
    auth: Auth | None
    timeout: float | None
    on_progress: OnProgress | None
    on_notification: OnNotification | None
    on_elicitation: OnElicitation | None
    requested_capabilities: Sequence[str]
    routing: RoutingPolicy | RoutingConfig | str | None
    record: Recording | str | Path | None
    config: str | Path | None
    evidence: Evidence | GeneralEvidence | None
    accept_compression: bool | None


class ConnectOptions(CommonOptions, total=False):
    """Options of :func:`connect`, which describes them. What the session does not take goes to its transport."""

    store: ArtifactStore | FromHost | str | Path | None
    browser: Browser | browsers.BrowserLender | str | None
    page: Page | None
    context: BrowserContext | None


@showing_options(ConnectOptions, transport="auto", requested_capabilities=())
@validate_arguments
def connect(target: str, **options: Unpack[ConnectOptions]) -> Session:
    """Return a session with the app at ``target``, opened and closed by ``async with connect(…) as app``.

    ``app = await connect(…)`` opens it as well; then the caller closes it with ``await app.aclose()``.

    ``target`` is the name of an app in the settings file (``[apps.NAME]``, docs/team.md; arguments override the entry),
    an ``http(s)://`` address (a page, driven in a browser), a ``ws(s)://`` address (an app behind a WebSocket), a
    Chrome extension (``extension:FOLDER``, or a folder with a ``manifest.json``), an MCP server
    (``mcp+stdio:COMMAND ARG …``, ``mcp+http(s)://…``, ``mcp:FILE#NAME``), or ``replay:FILE``, a recorded conversation.

    ``transport`` is a name or an instance. By default, a page is driven by its ``window.abp``, or by its WebMCP tools
    without one; ``"playwright"`` requires the first, ``"webmcp"`` the second; ``"postmessage"`` embeds an app in an
    iframe.

    ``store`` is a store, its URL, a host's own store, or an object that has one (``artifact_store``, ``artifacts``);
    the default is ``ABP_STORE``, else the folder ``ABP_OUTPUT_DIR``. A store object stays open when the session closes.
    A store named by its URL has the retention of the ``ABP_RETENTION_*`` variables. With a retention, a session stores
    to a scope of its own, and each call to a trace of its own.

    ``timeout`` in seconds is for connecting (``ABP_BROWSER_TIMEOUT``) and for calls without a timeout of their own
    (``ABP_CALL_TIMEOUT``); ``math.inf`` is no limit.

    For pages: ``browser`` is ``"chromium"``, ``"chrome"``, ``"msedge"``, ``"firefox"`` or ``"webkit"``, a running
    :class:`~transports.Browser` to share, or a :class:`~transports.batch.Pool` that lends a browser; ``profile`` is a
    folder that keeps a signed-in user; ``storage_state`` is initial cookies and storage, or a file of them; ``cdp_url``
    is a running Chromium to attach to; ``browser_server`` is a Playwright server that runs the browser; ``headers`` go
    to the server of these two, and are never shown; ``page`` and ``context`` are the caller's own, of
    ``playwright.async_api``; ``extension_page`` is the page of an extension that speaks ABP; ``adapter`` is a script
    that makes an ABP app of any page (docs/adapters.md). See :class:`~transports.PlaywrightTransport`.

    For WebSockets and MCP servers behind an address, ``headers`` are sent with requests, and are never shown. For MCP
    servers, ``auth`` is an ``httpx2.Auth``, such as the MCP SDK's ``OAuthClientProvider``.

    Callbacks are plain or coroutine functions. An elicitation handler returns ``{"success": True, "data": {…}}``, or
    raises to decline. Without a handler, a question gets the default that the app itself names, or is declined; a
    destructive question is never confirmed. ``requested_capabilities`` are names sent in ``initialize``.

    ``routing`` is the policy for files in answers: a :class:`~transports.RoutingPolicy`, the name of a preset
    (``"tableau"``), or a :class:`~transports.routing.RoutingConfig`. The default is the table ``[routing]`` of the
    settings file (``ABP_CONFIG``, else ``abp.toml`` in the working folder), and for MCP servers the preset of their
    name. ``config`` is another settings file. ``record`` is a file for the conversation, written without secrets, or a
    :class:`~transports.Recording` that names more secrets. ``evidence`` is kept of each call besides its answer: a
    trace, a video, requests, the console, a picture (:class:`~transports.Evidence`). With ``accept_compression``
    (``ABP_ACCEPT_COMPRESSION``), servers may compress files behind a ``downloadUrl``, which are decoded while they
    arrive: with gzip and deflate, and with br and zstd if the extra ``compression`` is installed.

    With secrets in the settings file (``[secrets.NAME]``), ``${SECRET:NAME}`` in parameters and answers to questions is
    replaced by the value when it is sent, and the value by that text in everything received. The session belongs to the
    user of the store's scope, or to ``tenant:`` and its tenant, and may use the apps and secrets of that user.

    Raises :class:`~transports.errors.UsageError` for an invalid target or option. Opening raises
    :class:`~transports.errors.TransportError`.

    Other schemes, and other names for ``transport``, are those of plug-ins (:mod:`transports.session._targets`).
    """
    for name in options.keys() - ConnectOptions.__annotations__.keys():
        raise TypeError(f"connect() got an unexpected keyword argument {name!r}")

    # What is not taken out here is for the transport.
    store = options.pop("store", None)
    config = options.pop("config", None)
    record = options.pop("record", None)
    evidence = options.pop("evidence", None)
    routing = options.pop("routing", None)
    on_elicitation = options.pop("on_elicitation", None)
    on_progress = options.pop("on_progress", None)
    on_notification = options.pop("on_notification", None)
    requested_capabilities = options.pop("requested_capabilities", ())
    accept_compression = options.pop("accept_compression", None)
    if options.get("transport") == "auto":
        del options["transport"]

    settings = Settings.load()
    if accept_compression is not None:
        settings = replace(settings, accept_compression=accept_compression)
    use_global_providers()

    file = read_config(settings.config if config is None else Path(config))
    user = store.scope.holder if isinstance(store, ArtifactStore) else None
    app = find_app(file, target, user)
    transport_options = {name: value for name, value in options.items() if value is not None}
    if app is not None:
        target = app.entry.url
        transport_options = app.entry.options | transport_options

    make = partial(_make_transport, target, transport_options, settings, on_elicitation is not None)
    guard = _guard_for(target, transport_options, make, app, secrets_for(file, user))
    transport = make({}) if guard is None else _guarded_transport(guard, make, app)
    discovery = discovery_for(target, transport, settings)
    if record is not None:
        transport = recorder = _make_recorder(transport, record, target)
        discovery = recorder.discovering(discovery) if discovery else None

    clean: Callable[[ABPError], object] | None = None
    if app is not None and guard is not None:
        # Discovery and downloads do not pass the guarded transport, so their errors are cleaned here.
        clean = guard.mask_error
        discovery = partial(_discover_cleaned, discovery, clean) if discovery else None

    return Session(
        transport,
        store=_open_store(store, settings),
        settings=settings,
        timeout=cast("float | None", transport_options.get("timeout")),
        on_progress=on_progress,
        on_notification=on_notification,
        on_elicitation=on_elicitation,
        requested_capabilities=requested_capabilities,
        routing=_routing(routing, file),
        discover=discovery,
        close_store=store is None or isinstance(store, str | Path),
        evidence=evidence_for(evidence, app.entry.evidence if app is not None else "", target),
        clean=clean,
    )


async def _discover_cleaned(
    discover: Callable[[], Awaitable[Discovery]], clean: Callable[[ABPError], object]
) -> Discovery:
    """Discover the manifest. Clean the reason why an app has none, since it becomes a warning of the session."""
    discovery = await discover()
    if discovery.reason is not None:
        clean(discovery.reason)
    return discovery


def _make_transport(
    target: str, options: Mapping[str, Any], settings: Settings, sampling: bool, resolved: Mapping[str, object]
) -> Transport:
    """Make a transport. ``resolved`` replaces options that hold secrets; ``sampling``: questions have a handler."""
    transport = options.get("transport", "auto")
    session_options = ("transport", "headless", "timeout")
    request_options: dict[str, object] = {}
    browser_options: dict[str, object] = {}
    for name, value in {**options, **resolved}.items():
        if name in ("headers", "auth"):
            request_options[name] = value
        elif name not in session_options:
            browser_options[name] = value

    if isinstance(transport, Transport):
        reject_options({**browser_options, **request_options}, "a transport instance; pass them to it")
        return transport
    return transport_for(
        target,
        transport,
        settings=settings,
        timeout=options.get("timeout"),
        headless=options.get("headless"),
        sampling=sampling,
        browser_options=browser_options,
        request_options=request_options,
    )


def _make_recorder(transport: Transport, record: Recording | str | Path, target: str) -> Recorder:
    from ..recording._file import Recording
    from ..recording._recorder import Recorder

    recording = record if isinstance(record, Recording) else Recording(record)
    if _is_replayed(target, Path(recording.path)):
        raise UsageError(f"{spelled('record=')} names the recording that is replayed; name another file")
    return Recorder(transport, recording)


def _is_replayed(target: str, path: Path) -> bool:
    scheme, _, replayed = target.partition(":")
    return scheme.lower() == "replay" and Path(replayed).resolve() == path.resolve()


def _guard_for(
    target: str, options: Mapping[str, Any], make: MakeTransport, app: NamedApp | None, secrets: Secrets
) -> Guard | None:
    """Return the guard of a session, or ``None`` if the settings file neither describes its app nor has secrets."""
    replays_recording = target.lower().startswith("replay:")
    uses_secrets = bool(secrets) and not replays_recording
    if app is None and not uses_secrets:
        return None

    guard = Guard(
        secrets,
        target,
        settings={name: options[name] for name in ("headers", "cdp_url") if name in options},
        make=make,
        headers_to=str(options.get("cdp_url") or options.get("browser_server") or ""),
    )
    if app is not None:
        # The operator, who wrote the file, may see how the app is reached.
        hidden = app.hidden if secrets.user is not None else ()
        guard = replace(guard, name=app.name, hidden=hidden, max_sessions=app.entry.max_sessions)
    return guard


def _guarded_transport(guard: Guard, make: MakeTransport, app: NamedApp | None) -> Transport:
    """Make a transport behind ``guard``. Errors here come from the app's settings, so they are masked as such."""
    try:
        if app is not None:
            app.require_state()
        return Guarded(make({}), guard)
    except ABPError as error:
        guard.mask_error(error, settings=True)
        raise


def _routing(routing: RoutingPolicy | RoutingConfig | str | None, file: ConfigFile) -> RoutingPolicy | RoutingConfig:
    if routing is None:
        return routing_of(file)
    if isinstance(routing, str):
        return named_preset(routing)
    return routing


def _open_store(store: object, settings: Settings) -> ArtifactStore:
    """Return the caller's store, else the one at its URL, else the one of the settings."""
    if store is not None and not isinstance(store, str | Path):
        discovered_store = discover_store(store, max_bytes=settings.max_artifact_bytes)
        if discovered_store is None:
            raise UsageError(
                f"{spelled('store=')} takes a store, its URL, or an object that has one, not a {type(store).__name__}"
            )
        return discovered_store
    return open_configured_store(settings, store, retention=retention_settings())
