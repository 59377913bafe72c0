"""The blocking API: the names of :mod:`transports`, for programs without an event loop.

>>> from transports.sync import connect
>>> with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = app.call("export.pdf", {"html": "<h1>Hi</h1>"}, timeout=30, on_progress=print)

Parameters, results and errors are those of the asynchronous API; errors, results, references and transports are
imported from :mod:`transports`. Ctrl-C during a call is what cancelling the awaiting task is there: the app is told.
Several threads may use one session. Callbacks are plain functions, each run in a thread of its own, or coroutine
functions, which run in the session's loop and must not use this API. ``aclose`` is ``close`` here. Everything has a
``wrapped``: the asynchronous object that does the work, for an option that asks for one.

``connect(page.url, page=page)`` drives a page of ``playwright.sync_api`` (pytest-playwright's ``page``). Its session
works in the page's thread, and only while a call of this API or of Playwright's waits: events come in meanwhile.

* :mod:`.loop` — the event loop in its thread.
* :mod:`.bridge` — how a coroutine method becomes a blocking one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .. import artifacts, routing
from .. import http as discovery
from ..adapters.recording import Recording
from ..artifacts import AuditLog, HostFacade, HostStore, Retention, Scope
from ..artifacts.base import DEFAULT_MAX_BYTES
from ..base import Transport
from ..browser.process import launch
from ..protocol.declarations import AppInfo, Capability
from ..routing import Fetcher, RoutingPolicy
from ..session import connect as targets
from ..session import resources, session
from ..session.inbox import OnElicitation, OnNotification, OnProgress
from .bridge import Blocking, Resource, blocking, blocking_function, closing, described, iterating, made_by, managing
from .loop import SHARED, Runner

if TYPE_CHECKING:
    from httpx2 import Auth
    from playwright.sync_api import BrowserContext, Page

    from ..browser.source import StorageState

__all__ = [
    "ArtifactStore",
    "Browser",
    "LocalStore",
    "NoneStore",
    "Router",
    "Session",
    "Staged",
    "connect",
    "discover",
    "open_store",
]


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


class Session(Resource[session.Session]):
    """An app that is connected, made by :func:`connect`."""

    call = blocking(session.Session.call)
    save = blocking(session.Session.save)
    render_to_pdf = blocking(session.Session.render_to_pdf)
    screenshot = blocking(session.Session.screenshot)
    events = iterating(session.Session.events)
    close = closing(session.Session.aclose)

    @property
    def info(self) -> AppInfo:
        """What the app said of itself."""
        return self.wrapped.info

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        """What the app can do, by name."""
        return self.wrapped.capabilities

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was odd about that."""
        return self.wrapped.warnings

    @property
    def session_id(self) -> str:
        """The app's name for this session."""
        return self.wrapped.session_id

    @property
    def transport(self) -> Transport:
        """What the session goes over."""
        return self.wrapped.transport

    @property
    def resources(self) -> Resources:
        """The resources of an MCP server."""
        return Resources(self.wrapped.resources, self._runner)

    @property
    def store(self) -> ArtifactStore:
        """Where its artifacts are."""
        return ArtifactStore(self.wrapped.store, self._runner)


class Staged(Blocking[artifacts.Staged]):
    """A file that nobody sees yet, made by :meth:`ArtifactStore.stage`."""

    write = blocking(artifacts.Staged.write)
    reset = blocking(artifacts.Staged.reset)
    commit = blocking(artifacts.Staged.commit)

    @property
    def path(self) -> Path:
        """Where somebody else may write the whole content instead. Do not mix it with :meth:`write`."""
        return self.wrapped.path

    @property
    def size(self) -> int:
        """Bytes given to :meth:`write` so far."""
        return self.wrapped.size


class ArtifactStore(Resource[artifacts.ArtifactStore]):
    """Any store of :mod:`transports.artifacts`, blocking; :func:`open_store` makes one."""

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
    gc = blocking(artifacts.ArtifactStore.gc)
    end_session = blocking(artifacts.ArtifactStore.end_session)
    fsck = blocking(artifacts.ArtifactStore.fsck)
    close = closing(artifacts.ArtifactStore.aclose)

    @described(artifacts.ArtifactStore.scoped)
    def scoped(self, scope: Scope) -> Self:
        view = copy.copy(self)
        view.wrapped = self.wrapped.scoped(scope)
        view._held = None  # the view was not entered
        return view

    @property
    def url(self) -> str:
        """Address that :func:`open_store` would open again."""
        return self.wrapped.url

    @property
    def max_bytes(self) -> int:
        """Largest artifact in bytes."""
        return self.wrapped.max_bytes


class LocalStore(ArtifactStore):
    """A store in a folder; see :class:`transports.LocalStore`."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        retention: Retention | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(artifacts.LocalStore(root, max_bytes=max_bytes, retention=retention, audit=audit))


class NoneStore(ArtifactStore):
    """A store that keeps nothing; see :class:`transports.NoneStore`."""

    def __init__(self, *, max_bytes: int = DEFAULT_MAX_BYTES, audit: AuditLog | None = None) -> None:
        super().__init__(artifacts.NoneStore(max_bytes=max_bytes, audit=audit))


class Router(Blocking[routing.Router]):
    """Stores every binary of an answer and puts a reference in its place; see :class:`transports.Router`."""

    def __init__(
        self,
        store: ArtifactStore | HostStore | HostFacade,
        *,
        fetcher: Fetcher | None = None,
        policy: RoutingPolicy | None = None,
    ) -> None:
        super().__init__(routing.Router(_asynchronous(store), fetcher=fetcher, policy=policy))

    route = blocking(routing.Router.route)


class Browser(Resource[launch.Browser]):
    """A Chromium of our own, that several sessions may share; see :class:`transports.Browser`::

    with Browser() as browser:
        with connect(url, browser=browser) as app: ...
    """

    def __init__(
        self,
        *,
        headless: bool = True,
        executable: str | None = None,
        timeout: float = 30.0,
        name: str | None = None,
        profile: str | Path | None = None,
        extensions: Sequence[str | Path] = (),
        cdp_url: str | None = None,
    ) -> None:
        super().__init__(
            launch.Browser(
                headless=headless,
                executable=executable,
                timeout=timeout,
                name=name,
                profile=profile,
                extensions=extensions,
                cdp_url=cdp_url,
            )
        )

    load_extension = blocking(launch.Browser.load_extension)

    responds = blocking(launch.Browser.responds)
    restart = blocking(launch.Browser.restart)
    close = closing(launch.Browser.aclose)

    @property
    def version(self) -> str:
        """The browser's own version."""
        return self.wrapped.version

    @property
    def attached(self) -> bool:
        """Whether it is somebody else's, and goes on without us."""
        return self.wrapped.attached

    @property
    def shares_context(self) -> bool:
        """Whether all its sessions share one context."""
        return self.wrapped.shares_context

    @property
    def folder(self) -> Path:
        """Where its temporary files are."""
        return self.wrapped.folder


open_store = made_by(artifacts.open_store, ArtifactStore)
discover = blocking_function(discovery.discover)


@described(targets.connect)
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
    given = locals()  # the first line, so that it holds the parameters and all of them
    options = {name: _asynchronous(value) for name, value in given.items() if value is not None}
    return Session(targets.connect(**options), _runner(page or context))


def _asynchronous(value: Any) -> Any:
    """What the asynchronous API takes in the place of ``value``."""
    if isinstance(value, Blocking):
        return value.wrapped
    if type(value).__module__.startswith("playwright.sync_api"):
        from ..browser.page.syncpage import asynchronous

        return asynchronous(value)
    return value


def _runner(owner: Page | BrowserContext | None) -> Runner:
    """Work on a page of ``playwright.sync_api`` runs where that page lives."""
    if owner is None:
        return SHARED
    from ..browser.page.syncpage import PageRunner

    return PageRunner(owner)
