"""A blocking session, and the functions that find and connect an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .. import http
from ..artifacts import HostFacade, HostStore
from ..base import Transport
from ..routing import RoutingConfig, RoutingPolicy
from ..session import connect as asynchronous
from ..session import handles, resources, session
from ..session.event_dispatch import OnElicitation, OnNotification, OnProgress
from .bridge import Blocking, blocking, blocking_function, described, iterate, making
from .browser import Browser
from .lifetime import Resource, closing, managing
from .loop import SHARED, Runner
from .stores import ArtifactStore

if TYPE_CHECKING:
    from httpx2 import Auth
    from playwright.sync_api import BrowserContext, Page

    from ..adapters.recording import Recording
    from ..browser.process.lending import BrowserLender
    from ..browser.source import StorageState
    from ..protocol.declarations import AppInfo, Capability
    from ..session.evidence import Evidence

__all__ = ["CallHandle", "Resources", "Session", "connect", "discover"]


class Resources(Blocking[resources.Resources]):
    """The resources of an MCP server, as :attr:`Session.resources`."""

    list = blocking(resources.Resources.list)
    templates = blocking(resources.Resources.templates)
    read = blocking(resources.Resources.read)
    subscribe = blocking(resources.Resources.subscribe)
    unsubscribe = blocking(resources.Resources.unsubscribe)

    @property
    def available(self) -> bool:
        """Whether the app says that it has resources."""
        return self.wrapped.available

    @property
    def subscriptions(self) -> frozenset[str]:
        """The URIs that are subscribed to."""
        return self.wrapped.subscriptions


class CallHandle(Blocking[handles.CallHandle]):
    """A call under way, made by :meth:`Session.start`."""

    status = blocking(handles.CallHandle.status)
    result = blocking(handles.CallHandle.result)
    cancel = blocking(handles.CallHandle.cancel)

    @property
    def id(self) -> str:
        """The id of the call, in events and in the ``source`` of what it stores."""
        return self.wrapped.id

    @property
    def capability(self) -> str:
        """The capability that is called."""
        return self.wrapped.capability


class Session(Resource[session.Session]):
    """An app that is connected, made by :func:`connect`.

    ``with connect(…) as app`` opens and closes it. ``app = connect(…).open()`` opens it; then the caller closes it with
    :meth:`close`.
    """

    call = blocking(session.Session.call)
    start = making(session.Session.start, CallHandle)
    save = blocking(session.Session.save)
    render_to_pdf = blocking(session.Session.render_to_pdf)
    screenshot = blocking(session.Session.screenshot)
    events = managing(session.Session.events, iterate)
    close = closing(session.Session.aclose)

    def open(self) -> Self:
        """Open the session outside a ``with`` block; the blocking form of ``await connect(…)``."""
        __tracebackhide__ = True
        return self.__enter__()

    @property
    def info(self) -> AppInfo:
        """The app's id, name, version and description, as ``initialize`` answered them."""
        return self.wrapped.info

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        """The app's capabilities by name, as of now: the mapping is replaced when the app says that they changed."""
        return self.wrapped.capabilities

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the app's manifest, or why there is none; empty without discovery."""
        return self.wrapped.warnings

    @property
    def session_id(self) -> str:
        """The app's own name for this session."""
        return self.wrapped.session_id

    @property
    def transport(self) -> Transport:
        """The transport that the session uses."""
        return self.wrapped.transport

    @property
    def resources(self) -> Resources:
        """The resources of an MCP server; other apps have none."""
        return Resources(self.wrapped.resources, self._runner)

    @property
    def store(self) -> ArtifactStore:
        """The store that results go to."""
        return ArtifactStore(self.wrapped.store, self._runner)


discover = blocking_function(http.discover)


@described(asynchronous.connect)
def connect(
    target: str,
    *,
    transport: str | Transport = "auto",
    store: ArtifactStore | HostStore | HostFacade | str | Path | None = None,
    headless: bool | None = None,
    browser: Browser | BrowserLender | str | None = None,
    profile: str | Path | None = None,
    storage_state: StorageState | None = None,
    cdp_url: str | None = None,
    browser_server: str | None = None,
    page: Page | None = None,
    context: BrowserContext | None = None,
    extension_page: str | None = None,
    adapter: str | Path | None = None,
    headers: Mapping[str, str] | None = None,
    auth: Auth | None = None,
    timeout: float | None = None,
    on_progress: OnProgress | None = None,
    on_notification: OnNotification | None = None,
    on_elicitation: OnElicitation | None = None,
    requested_capabilities: Sequence[str] = (),
    routing: RoutingPolicy | RoutingConfig | str | None = None,
    record: Recording | str | Path | None = None,
    config: str | Path | None = None,
    evidence: Evidence | None = None,
) -> Session:
    """As :func:`transports.connect`, whose docstring replaces this one."""
    parameters = locals()  # in the first line, so that it holds the parameters and nothing else
    __tracebackhide__ = True
    options = {name: _unwrapped(value) for name, value in parameters.items() if value is not None}
    return Session(asynchronous.connect(**options), _runner(page or context))


def _unwrapped(value: Any) -> Any:
    """Return what the asynchronous API takes in the place of ``value``."""
    if isinstance(value, Blocking):
        return value.wrapped
    if type(value).__module__.startswith("playwright.sync_api"):
        from ..browser.page.syncpage import to_async

        return to_async(value)
    return value


def _runner(owner: Page | BrowserContext | None) -> Runner:
    """Return the loop of a page of ``playwright.sync_api``, whose work must run where the page lives, else the shared
    one."""
    if owner is None:
        return SHARED
    from ..browser.page.syncpage import PageRunner

    return PageRunner(owner)
