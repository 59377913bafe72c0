"""The session: one connected app, from opening to closing. :meth:`Session.call` is the way of every call."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from .._internal import notebook
from .._internal.arguments import short_traceback
from .._internal.tasks import OpenedHere, Owner, cancel_and_wait
from .._internal.telemetry import observing_call
from ..artifacts._base import ArtifactStore
from ..artifacts._ref import ArtifactRef, Scope, shown_picture
from ..base import PdfOptions, ScreenshotOptions, Transport
from ..errors import (
    ABPError,
    CallTimeout,
    CapabilityError,
    ContextLost,
    Disconnected,
    ProtocolError,
    TooLarge,
    UsageError,
    may_have_run,
    repeat_advice,
)
from ..protocol._capabilities import response_metadata, with_suggestions
from ..protocol._elicitation import INVALID_ANSWER
from ..protocol._params import FileToRead, prepare_params
from ..protocol.messages import Message, WebResource, new_id
from ..routing._policy import RoutingConfig, RoutingPolicy
from ..routing._result import Result
from ._attempts import Attempts
from ._call import Call, CallHandle, OnProgress, Repeats, timeout_seconds
from ._connection import Connection, Handshake
from ._dispatch import EventDispatcher, OnElicitation, OnNotification
from ._events import EventStream
from ._resources import Resources
from ._results import Results
from ._settings import Settings

if TYPE_CHECKING:
    from ..protocol._capabilities import Discovery
    from ..protocol._declarations import AppInfo, Capability
    from . import View, ViewOptions
    from ._call_evidence import EvidenceOfCalls
    from ._events import Event
    from ._evidence import Evidence


async def load_modules(modules: Sequence[str], opened: asyncio.Event) -> None:
    """Import modules in a thread, once a transport is ``opened`` or has had time to start its processes: imports, which
    take the interpreter's lock, would delay them."""
    names = [name for name in modules if name not in sys.modules]
    if not names:
        return
    time_to_start = 0.03
    with suppress(TimeoutError):
        async with asyncio.timeout(time_to_start):
            await opened.wait()

    def load() -> None:
        for name in names:
            importlib.import_module(name)

    try:
        await asyncio.to_thread(load)
    except RuntimeError:
        # No thread can be started: there are too many, or the interpreter is shutting down.
        load()


async def _discover_later(loading: asyncio.Future[None], discover: Callable[[], Awaitable[Discovery]]) -> Discovery:
    await asyncio.wait((loading,))
    return await discover()


class Session(OpenedHere):
    """Session with one connected app, made by :func:`~transports.connect`.

    ``async with connect(…) as app`` opens and closes it. ``app = await connect(…)`` opens it; then the same task closes
    it with :meth:`aclose`. A session opens once. While it is open, it has :attr:`info`, :attr:`capabilities`,
    :attr:`warnings` and :attr:`session_id`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        store: ArtifactStore,
        settings: Settings,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        on_elicitation: OnElicitation | None = None,
        requested_capabilities: Sequence[str] = (),
        routing: RoutingPolicy | RoutingConfig | None = None,
        discover: Callable[[], Awaitable[Discovery]] | None = None,
        close_store: bool = False,
        evidence: Evidence | None = None,
        clean: Callable[[ABPError], object] | None = None,
    ) -> None:
        #: The transport that the session uses.
        self.transport = transport
        # Limits and clean-up of a session apply to its scope, so each session needs a scope of its own.
        needs_scope = store.retention and not store.scope.session
        #: The store that results go to.
        self.store = store.scoped(Scope(session=uuid.uuid4().hex)) if needs_scope else store

        self._connect_timeout = timeout_seconds(timeout, settings.browser_timeout)
        self._call_timeout = timeout_seconds(timeout, settings.call_timeout)
        self._discover = discover
        self._close_store = close_store
        self._state: Literal["new", "open", "closed"] = "new"
        self._stack = contextlib.AsyncExitStack()
        self._settings = settings
        self._routing = routing
        self._owner = Owner("session")

        self._results = Results(transport, self.store, settings, routing, lambda: self.info.id or self.info.name)
        #: The resources of an MCP server; other apps have none.
        self.resources = Resources(
            transport,
            self.store,
            self._results.from_data,
            self._results.policy.resources,
            self._timeout_or_default,
            self._owner,
        )
        self._handshake = Handshake(
            transport, requested_capabilities, self.resources.with_generated, list_timeout=self._connect_timeout
        )
        self._connection = Connection(
            self._handshake,
            timeout=self._connect_timeout,
            resubscribe=self.resources.resubscribe,
            emit=lambda event: self._events.emit(event),
        )
        self._events = EventDispatcher(
            transport,
            self._owner,
            on_progress=on_progress,
            on_notification=on_notification,
            on_elicitation=on_elicitation,
            connection=self._connection,
            notified=self.resources.on_notification,
        )
        self._results.on_event = self._events.emit_threadsafe
        self._attempts = Attempts(
            transport, self._events, self._connection, self._handshake, trace_params=settings.trace_params
        )

        self._clean = clean
        #: The last picture of the page, for a notebook.
        self._picture: ArtifactRef | None = None
        self._evidence: EvidenceOfCalls | None = None
        if evidence is not None and evidence.kinds():
            from ._call_evidence import EvidenceOfCalls  # late: few sessions keep any

            self._evidence = EvidenceOfCalls(evidence, transport, self._results, self._events.streams)

    @property
    def info(self) -> AppInfo:
        """The app's description of itself, as ``initialize`` answered it; missing fields are those of its manifest."""
        return self._handshake.info

    @property
    def session_id(self) -> str:
        """The app's id of this session."""
        return self._handshake.session_id

    @property
    def features(self) -> Mapping[str, bool]:
        """The parts of the protocol that the app supports, such as ``progress``, as ``initialize`` answered them."""
        return self._handshake.features

    @property
    def capabilities(self) -> Mapping[str, Capability]:
        """The app's current capabilities by name; the mapping is replaced when the app reports a change."""
        return self._handshake.capabilities

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the app's manifest, or the reason why there is none; empty without discovery."""
        return self._handshake.warnings

    def __repr__(self) -> str:
        app = f" with {self.info.name[:80]!r}" if self._state == "open" else ""
        return f"<{self._state} Session{app} over {self.transport.name}>"

    def _repr_html_(self) -> str:
        info: AppInfo | None = getattr(self._handshake, "info", None)  # missing before it has opened
        app_name = (info.name or info.id) if info else ""
        html: str = notebook.table(("", ""), self._html_rows(), title=app_name or type(self).__name__)

        picture = shown_picture(self._html_pictures())
        if picture:
            html += picture.html("the last picture")
        return html

    def _html_rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("state", self._state), ("transport", self.transport.name)]
        if self._state == "open":
            if self.info.version:
                rows.append(("version", self.info.version))
            rows.append(("capabilities", self._named_capabilities()))
            rows += [("warning", warning) for warning in self.warnings[:8]]
        return rows

    def _named_capabilities(self) -> str:
        total = len(self.capabilities)
        if total == 0:
            return "none"
        names = ", ".join(islice(self.capabilities, 8))
        more = ", …" if total > 8 else ""
        return f"{total:,}: {names}{more}"

    def _html_pictures(self) -> list[ArtifactRef]:
        """Return files for a notebook, which shows the first of them that is a picture."""
        return [] if self._picture is None else [self._picture]

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    @short_traceback
    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise UsageError("a session can be opened only once; make another with connect()")
        self._state = "closed"  # until all is open: a session that failed to open cannot be used
        self._owner.claim()
        deadline = time.monotonic() + self._connect_timeout
        async with contextlib.AsyncExitStack() as stack:
            stack.push(self._clean_error)
            if self._close_store:
                stack.push_async_callback(self.store.aclose)
            discovery = await self._open_transport(stack)

            # Before the handshake, during which the app may send events already.
            await stack.enter_async_context(self._events)
            # A transport that used up the time still leaves the app a second to answer.
            await self._initialize(max(deadline - time.monotonic(), 1.0))
            self.resources.policy = self._results.policy_for(self.info.id).resources
            if discovery is not None:
                await self._handshake.apply_manifest(discovery)
            self._connection.ready.set()
            await stack.enter_async_context(self._evidence or contextlib.nullcontext())

            # Called in the reverse order, while the transport is still open.
            stack.push_async_callback(self.store.end_session)
            stack.push_async_callback(self._shut_down)
            stack.push_async_callback(self._attempts.aclose)
            self._stack = stack.pop_all()
        self._state = "open"
        return self

    async def _open_transport(self, stack: AsyncExitStack) -> asyncio.Future[Discovery] | None:
        """Open the transport, and import modules meanwhile. The returned task of the discovery ends with ``stack``."""
        modules = ["transports.protocol._payloads", "jsonschema_rs", "pathvalidate"]
        if self._discover is not None:
            modules.append("transports.routing.http._redirects")
        opened = asyncio.Event()
        loading = asyncio.ensure_future(load_modules(modules, opened))
        stack.push_async_callback(cancel_and_wait, (loading,))
        discovery = None
        if self._discover is not None:
            discovery = asyncio.ensure_future(_discover_later(loading, self._discover))
            stack.push_async_callback(cancel_and_wait, (discovery,))

        await stack.enter_async_context(self.transport)
        opened.set()
        await loading
        return discovery

    async def _initialize(self, seconds: float) -> None:
        """Initialize the app. A page may reload meanwhile, as many do once they have installed their service worker;
        then the transport opens it again, and the connection initializes it."""
        try:
            await self._handshake.initialize(seconds)
        except ContextLost:
            if not self.transport.features.reconnects:
                raise
            await self._connection.wait_until_ready(seconds, self._connect_timeout)

    async def _shut_down(self) -> None:
        with contextlib.suppress(ABPError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self.transport.notify(Message("shutdown", {"reason": "the client is done"}))

    def _clean_error(self, _: object, error: BaseException | None, __: object) -> None:
        if self._clean is not None and isinstance(error, ABPError):
            self._clean(error)

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @short_traceback
    async def aclose(self) -> None:
        """Send ``shutdown`` to the app and close the transport. Idempotent.

        Running calls fail with :class:`~transports.errors.Disconnected`; callbacks get events that have arrived. Raises
        :class:`~transports.errors.UsageError` in another event loop than the session's."""
        if self._state == "open":
            self._owner.require_same_loop()
        self._state = "closed"
        await self._stack.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    @short_traceback
    async def call(
        self,
        capability: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        idempotent: bool = False,
        once: bool = False,
        call_id: str | None = None,
    ) -> Result:
        """Call a capability and store its answer.

        ``params`` are JSON values; ``bytes``, :class:`pathlib.Path`, files that are open in binary mode and
        :class:`~transports.BinaryData` may stand anywhere in them. ``timeout`` in seconds is for the app's answer, by
        default the session's, else ``ABP_CALL_TIMEOUT``; ``math.inf`` is no limit. Cancelling the awaiting task cancels
        the call in the app.

        Retries: a call that the app refused before it ran (``RATE_LIMITED``, a forgotten session) and says is
        ``retryable`` is sent again within ``timeout``, after the delay that the app requests. A call that may have run
        (the connection broke, any other ``retryable`` error) is sent again only if it is ``idempotent``. With ``once``,
        a call that was sent is never sent again. If the transport reconnects by itself, a call waits for that. Each
        retry is a :class:`~transports.Retrying` event, and has an id of its own on the wire: an app must not expect to
        recognise it.

        Before this returns, callbacks get all events that arrived before the answer; it does not wait for a callback
        that blocks. The download of a ``downloadUrl`` is progress of the call, too: ``stage`` is "download", ``status``
        the place in the answer, ``progress`` and ``total`` are bytes.

        ``call_id`` is the id of the call in events and in the ``source`` of its artifacts; it must be unique. The
        default is random.

        Raises :class:`~transports.errors.UsageError` if the parameters do not fit the capability's schema,
        :class:`~transports.errors.CapabilityError` if the app refuses, :class:`~transports.errors.CallTimeout`,
        :class:`~transports.errors.BinaryError` if content differs from its declaration (``result`` holds the parts that
        were stored), and other :class:`~transports.errors.ABPError`::

            print((await app.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifact().path)
        """
        self._require_open()
        seconds = self._timeout_or_default(timeout)
        repeats: Repeats = "idempotent" if idempotent else "not run"
        if once:
            repeats = "never"
        call = Call(call_id or new_id(), capability, seconds, on_progress, repeats)
        async with self._running(call, params):
            await self._prepare(call, params or {})
            if capability in self.resources.names:
                call.result = await self._results.apply_inline_policy(
                    await self.resources.call_generated(call, params or {})
                )
            else:
                reply, data = await self._attempts.send(call)
                call.result = await self._keep(call, reply, data)
        return call.finished_result

    @contextlib.asynccontextmanager
    async def _running(self, call: Call, params: object = None) -> AsyncIterator[None]:
        """Surround a call with its events, its span and its evidence, and complete its error."""
        self._owner.require_same_loop()
        self._events.begin_call(call)
        try:
            with observing_call(call.id, call.capability, self.transport.name, self.capabilities):
                if self._evidence is None:
                    yield
                else:
                    async with self._evidence.recording_call(call, params):
                        yield
            if call.refused:
                warnings = (*call.finished_result.warnings, *call.refused)
                call.result = replace(call.finished_result, warnings=warnings)
            await self._events.wait_for_callbacks(call.on_progress)
        except ABPError as error:
            # The caller may cancel before the error is complete.
            call.fail(_cancellation_error(call))
            complete_error = await self._completed_error(call, error)
            call.fail(complete_error)
            if not isinstance(complete_error, CallTimeout):
                await self._events.wait_for_callbacks(call.on_progress)
            # Other errors that were handled on the way are of no use to the caller.
            raise complete_error from complete_error.__cause__
        except asyncio.CancelledError:
            call.fail(_cancellation_error(call))
            raise
        finally:
            self._events.end_call(call)

    async def _prepare(self, call: Call, params: Mapping[str, object]) -> None:
        """Take the content out of the parameters, and check them against the capability's schema."""
        if params:
            try:
                call.params, call.content = prepare_params(dict(params), read_files=False)
            except FileToRead:
                call.params, call.content = await asyncio.to_thread(prepare_params, dict(params))
        declaration = self.capabilities.get(call.capability)
        if declaration is not None:
            call.warnings = self._handshake.check_params(declaration, call.params, call.content)
            call.output_schema = declaration.output_schema

    async def _keep(self, call: Call, reply: Message, data: object) -> Result:
        """Store the files of an answer, and read small resources that it links to."""
        result = await self._results.from_answer(reply, data, call, self._events.download_progress(call))
        if isinstance(reply.payload, dict) and "metadata" in reply.payload:
            result = replace(result, response_metadata=response_metadata(reply.payload["metadata"]))
        if isinstance(result.data, dict) and "content" in result.data:
            result = await self.resources.read_links(result, call)
        return await self._results.apply_inline_policy(result)

    async def _completed_error(self, call: Call, error: ABPError) -> ABPError:
        """Return the error of a call as its caller gets it: with the capability, what was stored, and what to do."""
        if isinstance(error, CapabilityError):
            await self._keep_data_of(error, call)
            with_suggestions(error, call.capability, self.capabilities, call.params)

        # Transports do not know the capability.
        of_transport = isinstance(error, CallTimeout | Disconnected | ProtocolError | TooLarge)
        if of_transport and not error.message.startswith(f"{call.capability}: "):
            error.located(call.capability)

        if isinstance(error, Disconnected):
            is_usable_again = self.transport.features.reconnects
            if is_usable_again or may_have_run(error):
                error.followed_by(repeat_advice(error))
        if self._clean is not None:
            self._clean(error)

        if call.refused:
            return _caused_by_refusal(error, call)
        if call.unanswered and isinstance(error, CapabilityError):
            error.followed_by(call.unanswered)
        return error

    async def _keep_data_of(self, error: CapabilityError, call: Call) -> None:
        """Store the data that an app sent beside its error."""
        if error.answered is None:
            return
        data = error.answered
        error.answered = None
        with contextlib.suppress(ABPError):  # the error of the app comes first
            error.result = await self._results.apply_inline_policy(await self._results.from_data(data, call))

    @short_traceback
    async def start(
        self,
        capability: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        idempotent: bool = False,
        once: bool = False,
        call_id: str | None = None,
    ) -> CallHandle:
        """Begin a call with the arguments of :meth:`call`, and return at once.

        The handle has the state of the call, waits for its result and cancels it; its ``result()`` raises the errors of
        the call. The call ends with the session. Raises :class:`~transports.errors.Disconnected` and
        :class:`~transports.errors.UsageError` if the session is not open::

            handle = await app.start("export.pdf", {"html": "<h1>Hi</h1>"})
            print(await handle.status(), (await handle.result()).artifact().path)
        """
        self._require_open()
        self._owner.require_same_loop()
        call = call_id or new_id()
        work = self.call(
            capability, params, timeout=timeout, on_progress=on_progress, idempotent=idempotent, once=once, call_id=call
        )
        return CallHandle(call, capability, work, self._events.has_open_question, self._owner)

    @short_traceback
    async def save(self, artifact: ArtifactRef | str, path: str | os.PathLike[str]) -> Path:
        """Copy an artifact of this session, a reference or an id, from any store to ``path``.

        Returns the absolute path. Also works after the session is closed. Missing folders are created, an existing file
        is replaced, and the content is verified while it is copied; see :meth:`.ArtifactStore.export` for the errors.
        """
        return await self.store.export(artifact, path)

    @short_traceback
    async def render_to_pdf(
        self, /, html: str, *, public_hosts: bool = False, timeout: float | None = None, **options: Unpack[PdfOptions]
    ) -> Result:
        """Print ``html`` with the app's browser and store the PDF as the artifact ``document``.

        The HTML has no network. With ``public_hosts``, its resources are fetched from hosts with public addresses,
        without cookies (``ABP_ALLOW_PRIVATE_ADDRESSES`` applies here, too). ``options`` are those of Playwright's
        ``page.pdf``: ``format="A4"``, ``landscape=True``, … (:class:`PdfOptions <transports.base.PdfOptions>`).
        ``timeout`` is in seconds, unlike Playwright's milliseconds. Raises :class:`~transports.errors.UsageError` if
        the app is not in a page or an option does not exist, and :class:`~transports.errors.CallTimeout`.
        """
        request = Message("page/pdf", {"html": html, "options": options}, fetch=self._fetch if public_hosts else None)
        return await self._use_page("render_to_pdf", request, "document", timeout)

    @short_traceback
    async def screenshot(self, /, *, timeout: float | None = None, **options: Unpack[ScreenshotOptions]) -> Result:
        """Store a picture of the app's page, or of another ``url=``, as the artifact ``image``.

        ``timeout`` is in seconds. ``options`` are ``width=``, ``height=`` and those of Playwright's ``page.screenshot``
        (``full_page=True``, …): :class:`ScreenshotOptions <transports.base.ScreenshotOptions>`. Raises the errors of
        :meth:`render_to_pdf`."""
        result = await self._use_page("screenshot", Message("page/screenshot", options), "image", timeout)
        self._picture = result.artifacts.get("image", self._picture)
        return result

    async def _use_page(self, tool: str, request: Message, artifact: str, timeout: float | None) -> Result:
        """Run a tool of the page, and store the file that it makes under the name ``artifact``."""
        self._require_open()
        if not self.transport.features.page:
            raise UsageError(f"{tool} needs an app in a page; this one is reached by {self.transport.name}")
        call = Call(new_id(), tool, self._timeout_or_default(timeout))
        async with self._running(call):
            reply = await self.transport.request(request, timeout=call.timeout)
            call.result = await self._results.from_data({artifact: reply.payload}, call)
        return call.finished_result

    async def _fetch(self, url: str, accept: str, max_bytes: int) -> WebResource:
        from ..routing.http._redirects import fetch_public  # late: aiohttp, which most sessions never need

        return await fetch_public(
            url,
            accept=accept,
            timeout=30.0,  # of one request by the HTML
            max_bytes=max_bytes,
            allow_private=self._settings.allow_private_addresses,
        )

    def open_view(
        self, capability: str, params: Mapping[str, object] | None = None, **options: Unpack[ViewOptions]
    ) -> View:
        """Call a tool of an MCP server and show its view, for ``async with app.open_view(…) as view`` (docs/views.md).

        The view is a session, whose capabilities are the tools that the view registers. ``options`` are those of
        :class:`ViewOptions <transports.session._views.ViewOptions>`: ``theme="dark"``, ``size=(400, 800)``, …

        Raises :class:`~transports.errors.UsageError` if the app is not an MCP server, or the tool has no view. Opening
        the view raises the errors of :meth:`call`, and :class:`~transports.errors.NotAbpApp` if the view stays blank.
        """
        self._require_open()
        from . import View  # late: it is a session, needs the extra [mcp], and few sessions show views

        return View(self, capability, params, **options)

    def _timeout_or_default(self, timeout: float | None) -> float:
        return self._call_timeout if timeout is None else timeout_seconds(timeout, 0)

    def _require_open(self) -> None:
        if self._state == "closed":
            raise Disconnected("the session is closed; connect again", sent=False)
        if self._state == "new":
            raise UsageError("the session is not open; use `async with connect(…) as app` or `app = await connect(…)`")

    def events(self) -> AbstractAsyncContextManager[AsyncIterator[Event], None]:
        """Return a stream of events, for ``async with app.events() as events: async for event in events``.

        It has the events from the beginning of the block: calls and their progress, notifications, questions (answered
        by the handler, not here), retries, changes of the connection and of the capabilities. It ends when the session
        closes. Any number of streams may be open; a listener that is 10,000 events behind loses the oldest, which is
        logged.
        """
        return EventStream(self._events.streams)


def _cancellation_error(call: Call) -> CapabilityError:
    return CapabilityError(f"{call.capability}: cancelled by the client", code="CANCELLED")


def _caused_by_refusal(error: ABPError, call: Call) -> ABPError:
    """Return an error whose message is the refusal, which is the cause. The app's error goes to its details."""
    if not isinstance(error, CapabilityError):
        return error.followed_by(call.refused[0])
    what_the_app_said = error.message.removeprefix(f"{call.capability}: ")
    refusal = UsageError(
        f"{call.capability}: {call.refused[0]}; then the app said: {what_the_app_said}",
        code=INVALID_ANSWER,
        details={"app": error.as_dict()},
    )
    refusal.evidence = error.evidence
    return refusal
