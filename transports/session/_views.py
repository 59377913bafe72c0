"""Views: sessions with the HTML of an MCP server's tool (docs/views.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypedDict, Unpack

from .._internal.arguments import short_traceback, validate_arguments
from .._internal.redaction import REDACTED
from ..artifacts._ref import ArtifactRef, files_table
from ..base import Transport, WrappedTransport
from ..errors import NotRecorded, UsageError, spelled
from ..mcp.views._document import CspMode, ViewDocument, read_document
from ..mcp.views._host import Decision, DisplayMode, HostContext, ViewHandlers, ViewRequest, read_profile
from ..mcp.views._transport import OpenedTool, ViewTransport
from ..playwright._source import PageSource
from ..protocol.binary import BinaryData
from ..protocol.messages import Message, new_id
from ..routing._result import Result
from ._call import Call, keeping_server_calls
from ._session import Session

if TYPE_CHECKING:
    from playwright.async_api import Frame


class ViewOptions(TypedDict, total=False):
    """Options of :meth:`Session.open_view <transports.Session.open_view>`.

    ``host`` is the host to imitate: ``"spec"`` (the default), ``"claude"``, ``"chatgpt"``, ``"goose"``,
    ``"basic-host"``, or the path of a profile of one's own. The view learns its surroundings: ``theme`` (``"light"``),
    ``locale`` (BCP 47, ``"en-US"``), ``timezone`` (IANA, ``"UTC"``), ``display_mode`` (``"inline"``) and ``size`` in
    CSS pixels (``(900, 700)``). The browser's dates and numbers follow ``locale`` and ``timezone``, except in a context
    that exists already. ``csp`` is its policy: as its server declares it, that of the specification for views that
    declare nothing (``"spec"``), or ``"loose"``. The handlers decide what a person would: they get an address, a
    message or a display mode, and refuse with ``False``; without them all is granted. ``timeout`` in seconds is for the
    tool and for the view, each."""

    host: str | Path
    theme: Literal["light", "dark"]
    locale: str
    timezone: str
    display_mode: DisplayMode
    size: tuple[int, int]
    csp: CspMode
    on_open_link: Callable[[str], Decision]
    on_message: Callable[[Mapping[str, object]], Decision]
    on_display_mode: Callable[[str], Decision]
    timeout: float


class View(Session):
    """Session with a view, made by :meth:`Session.open_view <transports.Session.open_view>`.

    Results go to the store of the session that opened it, which must stay open."""

    @validate_arguments
    def __init__(
        self,
        parent: Session,
        capability: str,
        params: Mapping[str, object] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        server = ViewServer(parent.transport)
        declaration = parent.capabilities.get(capability)
        if declaration is None or declaration.view is None:
            with_views = [name for name, listed in parent.capabilities.items() if listed.view is not None]
            others = f"; tools with views: {', '.join(with_views[:10])}" if with_views else ""
            raise UsageError(f"{capability!r} has no view{others}")

        self._profile = read_profile(options.get("host", "spec"))
        mode = options.get("display_mode", "inline")
        if mode not in self._profile.display_modes:
            raise UsageError(f"{self._profile.name} shows views {', '.join(self._profile.display_modes)}, not {mode!r}")

        timeout = options.get("timeout")
        context = _host_context(options)
        self._parent = parent
        self._capability = capability
        self._uri = declaration.view
        self._files: list[ArtifactRef] = []
        self._result: Result | None = None
        self._view = ViewTransport(
            declaration.view,
            partial(self._open_tool, server, capability, params, declaration.view),
            source=replace(_pages_for(parent.transport), locale=context.locale, timezone=context.timezone),
            relay=partial(server.relay, timeout=parent._timeout_or_default(timeout)),
            context=context,
            handlers=ViewHandlers(
                options.get("on_open_link"), options.get("on_message"), options.get("on_display_mode")
            ),
            csp=options.get("csp", "declared"),
            profile=self._profile,
            timeout=parent._connect_timeout if timeout is None else timeout,
        )
        self._view.on_file = self._store_download
        super().__init__(
            self._view,
            store=parent.store,
            settings=parent._settings,
            timeout=timeout,
            routing=parent._routing,
            clean=parent._clean,
        )

    async def _open_tool(
        self, server: ViewServer, capability: str, params: Mapping[str, object] | None, uri: str
    ) -> OpenedTool:
        """Call the tool, and read the document of its view from the server.

        Raises :class:`~transports.errors.NotRecorded` for a recording without the view."""
        parent, seconds = self._parent, self._call_timeout
        with keeping_server_calls() as server_calls:
            self._result = await parent.call(capability, params, timeout=seconds)

        if not server_calls:
            raise NotRecorded(
                f"this call of {capability} was recorded without its view; record again, with {spelled('open_view')}"
            )
        document = await server.document(uri, timeout=seconds)
        if _is_replayed(parent.transport) and REDACTED in document.html:
            warning = (
                f"the recording has {REDACTED} in place of some texts of the view; its script may fail because of that"
            )
            document = replace(document, warnings=(warning, *document.warnings))

        tool_call = server_calls[-1]
        return OpenedTool(tool_call.tool, tool_call.arguments, tool_call.result, document)

    async def _store_download(self, content: BinaryData) -> None:
        result = await self._results.from_data({"file": content}, Call(new_id(), "ui/download-file", math.inf))
        self._files += result.artifacts.values()

    def _repr_html_(self) -> str:
        html = super()._repr_html_()
        if self._files:
            html += files_table([("", ref) for ref in self._files], "files of the view")
        return html

    def _html_rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("view", self._uri), ("tool", self._capability), ("host", self._profile.name)]
        if self._state == "open":
            rows.append(("requests to its host", f"{len(self.requests):,}"))
            rows += [("forbidden by its policy", text) for text in self.violations[:5]]
        return [*rows, *super()._html_rows()]

    def _html_pictures(self) -> list[ArtifactRef]:
        pictures = super()._html_pictures()
        if self._result is not None:
            pictures += self._result.artifacts.values()
        return pictures

    @property
    def files(self) -> Sequence[ArtifactRef]:
        """Files that the view handed out while no call was under way."""
        return tuple(self._files)

    @property
    def result(self) -> Result:
        """The result of the tool that opened the view."""
        if self._result is None:
            raise UsageError("the view is not open; use `async with app.open_view(…) as view`")
        return self._result

    @property
    def frame(self) -> Frame:
        """The view's frame, of ``playwright.async_api``, for locators."""
        return self._view.frame

    @property
    def requests(self) -> Sequence[ViewRequest]:
        """The last 1,000 requests of each kind of the view to its host, in order."""
        return tuple(self._view.host.requests)

    @property
    def model_context(self) -> Mapping[str, object] | None:
        """The last context that the view gave its model, or ``None``."""
        return self._view.host.model_context

    @property
    def violations(self) -> Sequence[str]:
        """Reports of the browser about what the view's policy forbids, at most 100."""
        return tuple(self._view.diagnosis.violations)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the view: files and dialogs that were refused, errors of its scripts, forgotten requests."""
        diagnosis = self._view.diagnosis
        warnings = [*super().warnings]
        if self._view.document is not None:
            warnings += self._view.document.warnings
        warnings += self._view.host.warnings
        warnings += [f"a script of the view failed: {error}" for error in diagnosis.script_errors]
        warnings += diagnosis.load_failures
        warnings += [f"the view's sandbox refused: {text}" for text in diagnosis.sandbox_refusals]
        left_out = self._view.counts.get("left out", 0)
        if left_out:
            warnings.append(f"{left_out} notifications of the view were too many and were left out")
        return tuple(warnings)

    @short_traceback
    async def update(
        self,
        *,
        theme: Literal["light", "dark"] | None = None,
        locale: str | None = None,
        timezone: str | None = None,
        display_mode: DisplayMode | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Change the surroundings of the view, which learns what has changed."""
        self._require_open()
        options = {
            "theme": theme,
            "locale": locale,
            "timezone": timezone,
            "display_mode": display_mode,
            "size": size,
        }
        context = self._view.host.context
        set_options = {name: value for name, value in options.items() if value is not None}
        new_context = replace(context, **set_options)  # type: ignore[arg-type]

        old_json = context.as_json({}, self._profile)
        new_json = new_context.as_json({}, self._profile)
        changed = {name: value for name, value in new_json.items() if value != old_json[name]}
        await self._view.update(new_context, changed)

    @short_traceback
    async def send_input(self, partial: Mapping[str, object]) -> None:
        """Send arguments that are not complete yet, as while a model writes them (``tool-input-partial``)."""
        self._require_open()
        await self._view.notify_view("ui/notifications/tool-input-partial", {"arguments": dict(partial)})

    @short_traceback
    async def __aenter__(self) -> Self:
        self._parent._require_open()
        return await super().__aenter__()


def _host_context(options: ViewOptions) -> HostContext:
    names = ("theme", "locale", "timezone", "display_mode", "size")
    return HostContext(**{name: options[name] for name in names if name in options})  # type: ignore[literal-required]


class ViewServer:
    """An MCP server, as its views reach it through ``transport``."""

    def __init__(self, transport: Transport) -> None:
        if not transport.features.views:
            raise UsageError(f"views belong to the tools of MCP servers; this app is reached by {transport.name}")
        self._transport = transport

    async def relay(self, method: str, params: Mapping[str, object], *, timeout: float) -> Mapping[str, object]:
        request = Message("view/request", {"method": method, "params": dict(params)})
        return _payload(await self._transport.request(request, timeout=timeout))

    async def document(self, uri: str, *, timeout: float) -> ViewDocument:
        read = await self.relay("resources/read", {"uri": uri}, timeout=timeout)
        request = Message("view/listed", {"uri": uri, "read": read})
        entry = _payload(await self._transport.request(request, timeout=timeout)).get("listed")
        return read_document(uri, read, entry if isinstance(entry, Mapping) else None)


def _payload(reply: Message) -> Mapping[str, object]:
    return reply.payload if isinstance(reply.payload, Mapping) else {}


def _is_replayed(transport: Transport) -> bool:
    from ..recording._replay import ReplayTransport  # late: few views are shown from a recording

    return isinstance(_innermost_transport(transport), ReplayTransport)


def _innermost_transport(transport: Transport) -> Transport:
    while isinstance(transport, WrappedTransport):
        transport = transport.wrapped
    return transport


def _pages_for(transport: Transport) -> PageSource:
    """Return the source of pages for views of a transport's tools: the transport's, or else a new browser."""
    transport = _innermost_transport(transport)
    views = getattr(transport, "views", None)
    return views if isinstance(views, PageSource) else PageSource()
