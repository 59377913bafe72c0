"""The resources of an MCP server (seed 002 §5.7): listed, read when somebody asks, kept until they change."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import Any, Protocol, TypeVar, cast

from ..artifacts import ArtifactStore
from ..base import ResourcePage, ResourceTools, Transport
from ..binary import BinaryData, Encoded, verify_size
from ..binary.detect import Place, find, replace
from ..errors import ABPError, CapabilityError, ProtocolError, UsageError
from ..protocol.capabilities import Capabilities
from ..protocol.declarations import Resource, ResourceTemplate, parse
from ..protocol.payloads import Notification
from ..protocol.strict_json import JSONValue
from ..routing import ResourcePolicy, Result
from ..routing.policy import Step

__all__ = ["Resources"]

logger = logging.getLogger("transports")

#: Pages of a list that are read; a server may have no last one.
_PAGES = 1000
#: Resources that are remembered as read.
_KEPT = 1000
_METHOD_NOT_FOUND = -32601  # JSON-RPC 2.0 §5.1
_UPDATED = "notifications/resources/updated"

_CURSOR = {"cursor": {"type": "string", "description": "nextCursor of the page before"}}
#: What every server with resources can do, as capabilities (seed 002 Phase 2 "Generated tools").
_GENERATED: Sequence[Mapping[str, object]] = (
    {
        "name": "resources.list",
        "description": "List the server's resources, a page at a time.",
        "inputSchema": {"type": "object", "properties": _CURSOR},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "resources.templates",
        "description": "List the templates of resource addresses, a page at a time.",
        "inputSchema": {"type": "object", "properties": _CURSOR},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "resources.read",
        "description": "Read a resource: a short text is in the answer, anything else becomes an artifact.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "uri": {"type": "string"},
                "size": {"type": "integer", "minimum": 0, "description": "bytes that it must have"},
                "fresh": {"type": "boolean", "description": "read it again even if it is known"},
            },
            "required": ["uri"],
        },
        "annotations": {"readOnlyHint": True},
    },
)

_T = TypeVar("_T", Resource, ResourceTemplate)


class Route(Protocol):
    """Stores what is in an answer: :meth:`transports.routing.Router.route` for one session."""

    def __call__(self, data: object, capability: str, started: float) -> Awaitable[Result]: ...


class Resources:
    """What ``app.resources`` is. Methods take ``timeout`` in seconds, for each request; they raise
    :class:`~transports.errors.CapabilityError` if the server refuses, :class:`~transports.errors.UsageError`
    (``NOT_SUPPORTED``) for an app without resources, and other :class:`~transports.errors.ABPError`."""

    def __init__(
        self,
        transport: Transport,
        store: ArtifactStore,
        route: Route,
        policy: ResourcePolicy,
        seconds: Callable[[float | None], float],
    ) -> None:
        self._transport = transport
        self._store = store
        self._route = route
        self.policy = policy
        #: The capabilities that are answered here.
        self.names: frozenset[str] = frozenset()
        self._seconds = seconds
        self._read: OrderedDict[str, tuple[Result, float]] = OrderedDict()
        self._changes = 0
        self._subscribed: set[str] = set()

    @property
    def available(self) -> bool:
        """Whether the app says that it has resources."""
        return isinstance(self._transport, ResourceTools) and self._transport.has_resources

    async def list(self, *, timeout: float | None = None) -> tuple[Resource, ...]:
        """All resources, page after page; none for an app that has none."""
        return await self._all(Resource, "resources.list", timeout)

    async def templates(self, *, timeout: float | None = None) -> tuple[ResourceTemplate, ...]:
        """All templates of addresses, page after page; none for an app that has none."""
        return await self._all(ResourceTemplate, "resources.templates", timeout)

    async def read(
        self, uri: str, *, size: int | None = None, fresh: bool = False, timeout: float | None = None
    ) -> Result:
        """A resource: ``data`` is ``{contents: [{uri, mimeType, text | blob}]}``, where binary content is always an
        artifact (``contents.0.blob``), and so is a long text (``contents.0.text``).

        What was read before comes from the store, unless the server said that it changed, or the caller wants it
        ``fresh`` (seed 002 §7.3). ``size`` in bytes is what it must have, as a list or a link said; else
        :class:`~transports.errors.SizeMismatch` is raised and nothing is stored.
        """
        tools = self._tools()
        if not fresh and (kept := await self._known(uri)) is not None:
            return kept
        started, changes = time.perf_counter(), self._changes
        answer = await tools.read_resource(uri, timeout=self._seconds(timeout))
        contents = answer.get("contents")
        if not isinstance(contents, list):
            raise ProtocolError("the server's answer to resources/read has no contents")
        prepared = [self._prepared(item, size if len(contents) == 1 else None) for item in contents]
        result = await self._route({"contents": prepared}, "resources.read", started)
        self._keep(uri, result, answer.get("ttl"), changes)
        return result

    async def subscribe(self, uri: str, *, timeout: float | None = None) -> None:
        """Hear of changes: ``notifications/resources/updated`` with ``{uri}`` among the session's events. The
        subscription outlives a connection that is opened again."""
        await self._tools().subscribe_resource(uri, timeout=self._seconds(timeout))
        self._subscribed.add(uri)

    async def unsubscribe(self, uri: str, *, timeout: float | None = None) -> None:
        """Hear of them no more."""
        self._subscribed.discard(uri)
        await self._tools().unsubscribe_resource(uri, timeout=self._seconds(timeout))

    # --- for the session ----------------------------------------------------------------------------------------------

    def generated(self, capabilities: Capabilities) -> Capabilities:
        """With the capabilities that every server with resources has; a tool of the same name goes before."""
        ours = [one for one in _GENERATED if one["name"] not in capabilities] if self.available else []
        self.names = frozenset(str(one["name"]) for one in ours)
        return capabilities.merge(ours) if ours else capabilities

    async def call(self, capability: str, params: Mapping[str, Any], timeout: float | None) -> Result:
        """A generated capability."""
        if capability == "resources.read":
            return await self.read(
                params["uri"], size=params.get("size"), fresh=params.get("fresh", False), timeout=timeout
            )
        started = time.perf_counter()
        page = await self._page(capability, params.get("cursor"), timeout)
        key = "resources" if capability == "resources.list" else "resourceTemplates"
        more = {"nextCursor": page.cursor} if page.cursor is not None else {}
        return await self._route({key: [*page.items], **more}, capability, started)

    async def followed(self, result: Result) -> Result:
        """An answer whose small links were read, if the policy says so; a link that cannot be read stays one, and says
        why."""
        limit = self.policy.auto_read_if_size_under_bytes if self.policy.enabled else 0
        blocks = result.data.get("content") if isinstance(result.data, dict) else None
        if not limit or not isinstance(blocks, list) or not self.available:
            return result
        artifacts, steps, places = dict(result.artifacts), list(result.steps), dict[Place, object]()
        for index, block in enumerate(blocks):
            if not isinstance(block, dict) or block.get("type") != "resource_link":
                continue
            uri, size = block.get("uri"), block.get("size")
            if not isinstance(uri, str) or not isinstance(size, int) or size >= limit:
                continue
            place = f"content.{index}"
            try:
                read = await self.read(uri, size=size)
            except ABPError as error:
                places["content", index] = {**block, "fetched": False, "fetch_error": error.message}
                steps.append(Step("resources", place, f"could not be read: {error.message}"))
                continue
            contents = read.data.get("contents") if isinstance(read.data, dict) else None
            places["content", index] = {**block, "fetched": True, "contents": contents}
            artifacts |= {f"{place}.{field}": read.artifacts[field] for field in read.held}
            steps.append(Step("resources", place, f"{size:,} bytes, read at once"))
        held = result.held | (artifacts.keys() - result.artifacts.keys())
        data = cast(JSONValue, replace(result.data, places))
        return changed(result, data=data, artifacts=artifacts, steps=tuple(steps), held=held)

    def noticed(self, notification: Notification) -> None:
        """A notification came: what changed is forgotten before anybody hears of it."""
        data = notification.data
        if notification.event == _UPDATED and isinstance(data, Mapping):
            self._changes += 1
            uri = str(data.get("uri", ""))
            for known in [known for known in self._read if known == uri or known.startswith(uri.rstrip("/") + "/")]:
                del self._read[known]

    async def restored(self) -> None:
        """The connection is a new one: nobody told of changes meanwhile, or knows of our subscriptions."""
        self._changes += 1
        self._read.clear()
        for uri in self._subscribed:
            try:
                await self._tools().subscribe_resource(uri, timeout=self._seconds(None))
            except ABPError as error:
                logger.warning("no changes of %s are told any more: %s", uri, error.message)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _tools(self) -> ResourceTools:
        if not isinstance(self._transport, ResourceTools) or not self._transport.has_resources:
            raise UsageError("this app has no resources", code="NOT_SUPPORTED")
        return self._transport

    async def _page(self, what: str, cursor: str | None, timeout: float | None) -> ResourcePage:
        tools, seconds = self._tools(), self._seconds(timeout)
        try:
            if what == "resources.list":
                return await tools.list_resources(cursor, timeout=seconds)
            return await tools.list_templates(cursor, timeout=seconds)
        except CapabilityError as error:
            if error.details.get("code") == _METHOD_NOT_FOUND:  # many servers have one kind and not the other
                return ResourcePage(())
            raise

    async def _all(self, model: type[_T], what: str, timeout: float | None) -> tuple[_T, ...]:
        if not self.available:
            return ()
        found: list[_T] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await self._page(what, cursor, timeout)
            for item in page.items:
                try:
                    found.append(parse(model, item, "an entry of a list of resources"))
                except ProtocolError as error:
                    logger.warning("%s; it is left out", error.message)
            cursor = page.cursor
            if cursor is None:
                return tuple(found)
        logger.warning("the app lists resources on more than %d pages; the rest is left out", _PAGES)
        return tuple(found)

    def _prepared(self, item: object, size: int | None) -> object:
        """Content as the router stores it: with the size that it must have, and a long text as a file."""
        if not isinstance(item, dict):
            return item
        text, blob, uri, mime_type = (item.get(key) for key in ("text", "blob", "uri", "mimeType"))
        if isinstance(blob, BinaryData):
            return {**item, "blob": changed(blob, size=size)}
        if isinstance(blob, str):
            return {**item, "blob": BinaryData(Encoded(blob, "base64"), size=size)}
        if not isinstance(text, str):
            return item
        if size is not None:
            verify_size(size, len(text.encode(errors="surrogatepass")))
        if len(text) < self.policy.inline_text_if_under_chars or find(text):
            return item
        kind = mime_type if isinstance(mime_type, str) and mime_type else "text/plain"
        name = str(uri).rpartition("/")[2] or None
        return {**item, "text": BinaryData(Encoded(text, "utf-8"), kind, filename=name)}

    async def _known(self, uri: str) -> Result | None:
        if uri not in self._read:
            return None
        result, until = self._read[uri]
        if time.monotonic() < until and all([await self._store.exists(ref.id) for ref in result.artifacts.values()]):
            self._read.move_to_end(uri)
            return result
        self._read.pop(uri, None)
        return None

    def _keep(self, uri: str, result: Result, ttl: object, changes: int) -> None:
        """Remember what was read, for as long as the server allows (``ttl`` in seconds, MCP 2026-07-28), unless
        something changed meanwhile."""
        self._read.pop(uri, None)
        seconds = float(ttl) if isinstance(ttl, int | float) else float("inf")
        if self.policy.cache_reads_to_artifacts and seconds > 0 and changes == self._changes:
            self._read[uri] = result, time.monotonic() + seconds
            if len(self._read) > _KEPT:
                self._read.popitem(last=False)
