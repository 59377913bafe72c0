"""Blocking names of :mod:`transports`: session, resources, stores, router, browser, ``connect`` and ``discover``.

Docstrings of properties repeat those of the asynchronous namesakes, which a test compares.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from .. import artifacts, playwright as browsers, routing
from .._internal.arguments import showing_options
from ..artifacts._content import Durability
from ..artifacts._hosts import FromHost
from ..artifacts._ref import Scope
from ..base import Transport
from ..errors import ABPError
from ..routing._layers import Fetcher
from ..routing._policy import OnRoutingEvent, RoutingPolicy
from ..session._call import CallHandle as AsyncCallHandle
from ..session._connect import CommonOptions, connect as async_connect
from ..session._manifest import discover as async_discover
from ..session._resources import Resources as AsyncResources
from ..session._session import Session as AsyncSession
from ._bridge import (
    SHARED,
    Blocking,
    Resource,
    Runner,
    blocking,
    blocking_error,
    blocking_function,
    blocking_returning,
    closing,
    iterate,
    iterating,
    managing,
    returning,
    taking_parameters_of,
    with_docstring_of,
)

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

    from ..protocol._declarations import AppInfo, Capability
    from ..session._views import ViewOptions
    from . import View


class Browser(Resource[browsers.Browser]):
    """Blocking browser that several sessions may share; see :class:`transports.Browser`::

    with Browser() as browser:
        with connect(url, browser=browser) as app: ...
    """

    @taking_parameters_of(browsers.Browser)
    def __init__(self, wrapped: browsers.Browser) -> None:
        super().__init__(wrapped)

    load_extension = blocking(browsers.Browser.load_extension)
    responds = blocking(browsers.Browser.responds)
    resident_bytes = blocking(browsers.Browser.resident_bytes)
    restart = blocking(browsers.Browser.restart)
    ensure_running = blocking(browsers.Browser.ensure_running)
    close = closing(browsers.Browser.aclose)

    @property
    def version(self) -> str:
        """Version of the browser, as reported by it."""
        return self.wrapped.version

    @property
    def attached(self) -> bool:
        """True if the browser was not started here, and so keeps running after :meth:`aclose`."""
        return self.wrapped.attached

    @property
    def closed(self) -> bool:
        """True before opening and after closing. A browser that died is still open, as it is started again."""
        return self.wrapped.closed

    @property
    def after_restart(self) -> str:
        """Consequence of the end of the browser, for error messages: restart with or without cookies and storage."""
        return self.wrapped.after_restart

    @property
    def shares_context(self) -> bool:
        """True if all sessions share one context, and so cookies and storage."""
        return self.wrapped.shares_context

    @property
    def folder(self) -> Path:
        """The folder of its temporary files."""
        return self.wrapped.folder


class Staged(Blocking[artifacts.Staged]):
    """Blocking staged file, not visible yet, made by :meth:`ArtifactStore.stage`."""

    write = blocking(artifacts.Staged.write)
    reset = blocking(artifacts.Staged.reset)
    commit = blocking(artifacts.Staged.commit)

    def follow(self) -> None:
        """Begin to measure the file at :attr:`path` while another program writes it, so that :meth:`commit` has less
        to read. The program must only append. The default does nothing."""
        self.wrapped.follow()

    @property
    def path(self) -> Path:
        """Path at which another program may write the whole content. Use either this or :meth:`write`."""
        return self.wrapped.path

    @property
    def size(self) -> int:
        """Number of bytes given to :meth:`write` so far."""
        return self.wrapped.size


class ArtifactStore(Resource[artifacts.ArtifactStore]):
    """Blocking store of :mod:`transports.artifacts`, made by :func:`open_store`."""

    stage = managing(artifacts.ArtifactStore.stage, Staged)
    put_bytes = blocking(artifacts.ArtifactStore.put_bytes)
    put_text = blocking(artifacts.ArtifactStore.put_text)
    put_file = blocking(artifacts.ArtifactStore.put_file)
    stat = blocking(artifacts.ArtifactStore.stat)
    exists = blocking(artifacts.ArtifactStore.exists)
    change_token = blocking(artifacts.ArtifactStore.change_token)
    presigned = blocking(artifacts.ArtifactStore.presigned)
    list = blocking(artifacts.ArtifactStore.list)
    open = iterating(artifacts.ArtifactStore.open)
    get = blocking(artifacts.ArtifactStore.get)
    export = blocking(artifacts.ArtifactStore.export)
    delete = blocking(artifacts.ArtifactStore.delete)
    enforce_retention = blocking(artifacts.ArtifactStore.enforce_retention)
    gc = blocking(artifacts.ArtifactStore.gc)
    end_session = blocking(artifacts.ArtifactStore.end_session)
    fsck = blocking(artifacts.ArtifactStore.fsck)
    close = closing(artifacts.ArtifactStore.aclose)

    @with_docstring_of(artifacts.ArtifactStore.scoped)
    def scoped(self, scope: Scope) -> Self:
        """Return :meth:`transports.ArtifactStore.scoped`, whose docstring replaces this one."""
        view = copy.copy(self)
        view.wrapped = self.wrapped.scoped(scope)
        view._open_manager = None  # the view was not entered
        return view

    @property
    def url(self) -> str:
        """URL that :func:`open_store` would open again."""
        return self.wrapped.url

    @property
    def max_bytes(self) -> int:
        """Largest artifact in bytes."""
        return self.wrapped.max_bytes


class LocalStore(ArtifactStore):
    """Blocking store in a folder; see :class:`transports.LocalStore`."""

    @taking_parameters_of(artifacts.LocalStore)
    def __init__(self, wrapped: artifacts.LocalStore) -> None:
        super().__init__(wrapped)


class NoneStore(ArtifactStore):
    """Blocking store that keeps nothing; see :class:`transports.NoneStore`."""

    @taking_parameters_of(artifacts.NoneStore)
    def __init__(self, wrapped: artifacts.NoneStore) -> None:
        super().__init__(wrapped)


class Router(Blocking[routing.Router]):
    """Blocking router: stores files of answers and puts references in their places; see :class:`transports.Router`."""

    def __init__(
        self,
        store: ArtifactStore | FromHost,
        *,
        fetcher: Fetcher | None = None,
        policy: RoutingPolicy | None = None,
        on_event: OnRoutingEvent | None = None,
        durability: Durability = "process",
    ) -> None:
        inner = store.wrapped if isinstance(store, ArtifactStore) else store
        router = routing.Router(inner, fetcher=fetcher, policy=policy, on_event=on_event, durability=durability)
        super().__init__(router)

    route = blocking(routing.Router.route)


open_store = returning(artifacts.open_store, ArtifactStore)


class Resources(Blocking[AsyncResources]):
    """Blocking resources of an MCP server, as :attr:`Session.resources`."""

    list = blocking(AsyncResources.list)
    templates = blocking(AsyncResources.templates)
    read = blocking(AsyncResources.read)
    subscribe = blocking(AsyncResources.subscribe)
    unsubscribe = blocking(AsyncResources.unsubscribe)

    @property
    def available(self) -> bool:
        """True if the app declares that it has resources."""
        return self.wrapped.available

    @property
    def subscriptions(self) -> frozenset[str]:
        """URIs of the current subscriptions."""
        return self.wrapped.subscriptions


class CallHandle(Blocking[AsyncCallHandle]):
    """Blocking handle of a running call, made by :meth:`Session.start`."""

    status = blocking(AsyncCallHandle.status)
    result = blocking(AsyncCallHandle.result)
    cancel = blocking(AsyncCallHandle.cancel)

    @property
    def id(self) -> str:
        """The id of the call, in events and in the ``source`` of its artifacts."""
        return self.wrapped.id

    @property
    def capability(self) -> str:
        """The capability that is called."""
        return self.wrapped.capability


class Session(Resource[AsyncSession]):
    """Blocking session with one connected app, made by :func:`connect`.

    ``with connect(…) as app`` opens and closes it. ``app = connect(…).open()`` opens it; then the caller closes it with
    :meth:`close`.
    """

    call = blocking(AsyncSession.call)
    start = blocking_returning(AsyncSession.start, CallHandle)
    save = blocking(AsyncSession.save)
    render_to_pdf = blocking(AsyncSession.render_to_pdf)
    screenshot = blocking(AsyncSession.screenshot)
    events = managing(AsyncSession.events, iterate)
    close = closing(AsyncSession.aclose)

    @with_docstring_of(AsyncSession.open_view)
    def open_view(
        self, capability: str, params: Mapping[str, object] | None = None, **options: Unpack[ViewOptions]
    ) -> View:
        """Open as :meth:`transports.Session.open_view`, whose docstring replaces this one."""
        __tracebackhide__ = True
        from . import View  # late, as the original

        try:
            return View(self.wrapped.open_view(capability, params, **options), self._runner)
        except ABPError as error:
            raise blocking_error(error)  # noqa: B904 - it is the same error

    def open(self) -> Self:
        """Open the session outside a ``with`` block; the blocking form of ``await connect(…)``."""
        __tracebackhide__ = True
        return self.__enter__()

    def _repr_html_(self) -> str:
        return self.wrapped._repr_html_()

    @property
    def info(self) -> AppInfo:
        """The app's description of itself, as ``initialize`` answered it; missing fields are those of its manifest."""
        return self.wrapped.info

    @property
    def features(self) -> Mapping[str, bool]:
        """The parts of the protocol that the app supports, such as ``progress``, as ``initialize`` answered them."""
        return self.wrapped.features

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        """The app's current capabilities by name; the mapping is replaced when the app reports a change."""
        return self.wrapped.capabilities

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the app's manifest, or the reason why there is none; empty without discovery."""
        return self.wrapped.warnings

    @property
    def session_id(self) -> str:
        """The app's id of this session."""
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


discover = blocking_function(async_discover)


class ConnectOptions(CommonOptions, total=False):
    """Options of :func:`connect`: blocking objects in the places of asynchronous ones."""

    store: ArtifactStore | FromHost | str | Path | None
    browser: Browser | browsers.BrowserLender | str | None
    page: Page | None
    context: BrowserContext | None


@with_docstring_of(async_connect)
@showing_options(ConnectOptions, transport="auto", requested_capabilities=())
def connect(target: str, **options: Unpack[ConnectOptions]) -> Session:
    """Connect as :func:`transports.connect`, whose docstring replaces this one."""
    __tracebackhide__ = True
    unwrapped: dict[str, Any] = {name: _unwrap(value) for name, value in options.items() if value is not None}
    return Session(async_connect(target, **unwrapped), _runner(options.get("page") or options.get("context")))


def _unwrap(value: Any) -> Any:
    """Return the asynchronous object for a blocking ``value``; other values unchanged."""
    if isinstance(value, Blocking):
        return value.wrapped
    if type(value).__module__.startswith("playwright.sync_api"):
        return browsers.to_async(value)
    return value


def _runner(owner: Page | BrowserContext | None) -> Runner:
    """A page of ``playwright.sync_api`` has a loop of its own, and work for it must run in its thread."""
    if owner is None:
        return SHARED
    return browsers.PageRunner(owner)
