"""Resources of an MCP server (docs/requirements.md R2-5.7): listed, read on demand, cached until they change."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .. import protocol
from .._internal.arguments import short_traceback
from .._internal.recent import Recent
from .._internal.tasks import Owner, in_thread
from ..artifacts._base import ArtifactStore
from ..artifacts._ref import ArtifactRef
from ..base import Transport
from ..errors import ABPError, CapabilityError, ProtocolError, UsageError, no_answer
from ..protocol._capabilities import Capabilities
from ..protocol._find_content import Place, find, last_segment, replace_values
from ..protocol._plain_text import plain_line, redact_url
from ..protocol._strict_json import JSONValue, items_of, members_of
from ..protocol.binary import BinaryData, Encoded, verify_size
from ..protocol.messages import Message, new_id
from ..routing._policy import ResourcePolicy, Step
from ..routing._result import Result
from ._call import Call

if TYPE_CHECKING:
    from ..protocol._declarations import Resource, ResourceTemplate
    from ..protocol._payloads import Notification

logger = logging.getLogger("transports")


class ResourceCache:
    """Cache of results by URI; a result is valid only while all its artifacts are in the store. ``changes`` counts
    changes that the server reported: a result is not cached if a change arrived during its reading."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._results: Recent[str, tuple[Result, float]] = Recent(1000)
        self.changes = 0

    async def get(self, uri: str) -> Result | None:
        cached = self._results.get(uri)
        if cached is None:
            return None

        result, expires = cached
        is_valid = time.monotonic() < expires
        for ref in result.artifacts.values():
            is_valid = is_valid and await self._store.exists(ref.id)
        # A change that was reported during these checks has removed the result from the cache.
        if not is_valid or self._results.get(uri) is not cached:
            return None
        self._results.move_to_end(uri)
        return result

    def put(self, uri: str, result: Result, *, ttl: object, changes: int) -> None:
        """Cache a result, unless a change was reported since ``changes``, the count before the reading began.

        ``ttl`` is in seconds (MCP 2026-07-28); without a number, a result is valid until the resource changes."""
        self._results.pop(uri, None)
        seconds = float(ttl) if isinstance(ttl, int | float) else math.inf
        if seconds > 0 and changes == self.changes:
            self._results[uri] = result, time.monotonic() + seconds

    def on_notification(self, notification: Notification) -> None:
        """Drop the resource that ``notifications/resources/updated`` names, and the resources below that URI."""
        data = notification.data
        if notification.event == "notifications/resources/updated" and isinstance(data, Mapping):
            self.changes += 1
            uri = str(data.get("uri", ""))
            below = uri.rstrip("/") + "/"
            stale = [cached for cached in self._results if cached == uri or cached.startswith(below)]
            for cached in stale:
                del self._results[cached]

    def clear(self) -> None:
        self.changes += 1
        self._results.clear()


#: Method and key of the list that a capability returns.
_LISTS = {
    "resources.list": ("resources/list", "resources"),
    "resources.templates": ("resources/templates/list", "resourceTemplates"),
}
_CURSOR = {"cursor": {"type": "string", "description": "nextCursor of the page before"}}
#: Capabilities that are added to every server with resources (docs/requirements.md R2-6.2).
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

_T = TypeVar("_T", "Resource", "ResourceTemplate")


class Resources:
    """Resources of an MCP server, as ``app.resources``.

    ``timeout`` in seconds is for each request: ``None`` means the session's default, ``math.inf`` no limit.
    Methods raise :class:`~transports.errors.CapabilityError` if the server refuses,
    :class:`~transports.errors.UsageError` (``NOT_SUPPORTED``) for an app without resources, and other
    :class:`~transports.errors.ABPError`.
    """

    def __init__(
        self,
        transport: Transport,
        store: ArtifactStore,
        store_result: Callable[[object, Call], Awaitable[Result]],
        policy: ResourcePolicy,
        timeout_or_default: Callable[[float | None], float],
        owner: Owner,
    ) -> None:
        self._transport = transport
        self._store_result = store_result
        #: Policy for reading links and caching results; replaced when a preset applies.
        self.policy = policy
        #: Names of the capabilities that this object answers instead of the app.
        self.names: frozenset[str] = frozenset()
        self._timeout_or_default = timeout_or_default
        self._owner = owner
        self._cache = ResourceCache(store)
        #: Who is subscribed to each URI: parts of a program that share the session, and its user (this object).
        self._subscribers: dict[str, set[object]] = {}

    @property
    def available(self) -> bool:
        """True if the app declares that it has resources."""
        return self._transport.features.resources

    @short_traceback
    async def list(self, *, timeout: float | None = None) -> tuple[protocol.Resource, ...]:
        """Return all resources, read page after page; none for an app without resources.

        ``timeout`` is for all pages together.
        """
        return await self._fetch_all(protocol.Resource, "resources.list", timeout)

    @short_traceback
    async def templates(self, *, timeout: float | None = None) -> tuple[protocol.ResourceTemplate, ...]:
        """Return all templates of resource addresses, read page after page; none for an app without resources."""
        return await self._fetch_all(protocol.ResourceTemplate, "resources.templates", timeout)

    @short_traceback
    async def read(
        self, uri: str, *, size: int | None = None, fresh: bool = False, timeout: float | None = None
    ) -> Result:
        """Read a resource.

        The result's ``data`` is ``{contents: [{uri, mimeType, text | blob}]}``. Binary content is always an artifact
        (``contents.0.blob``); so is a long text (``contents.0.text``).

        A resource that was read before comes from the cache, unless the server reported a change or ``fresh`` is true
        (docs/requirements.md R2-7.3). ``size`` in bytes is the size that a list or a link announced: content of another
        size raises :class:`~transports.errors.SizeMismatch`, and nothing is stored.
        """
        call = Call(new_id(), "resources.read", self._timeout_or_default(timeout))
        return await self._read_resource(uri, call, size=size, fresh=fresh)

    async def _read_resource(self, uri: str, call: Call, *, size: int | None = None, fresh: bool = False) -> Result:
        self._require_resources()
        if not fresh:
            cached = await self._cache.get(uri)
            if cached is not None:
                return cached

        changes = self._cache.changes
        try:
            answer = await self._request("resources/read", {"uri": uri}, call.timeout)
        except CapabilityError as error:
            # Many servers do not say which resource they refused.
            raise error.located(plain_line(redact_url(uri), 200)) from None

        contents = answer.get("contents")
        if not isinstance(contents, list):
            raise ProtocolError("the server's answer to resources/read has no contents")
        if len(contents) != 1:
            # The announced size is that of a single content.
            size = None
        prepared_contents = [self._prepare_content(item, size) for item in contents]
        result = await self._store_result({"contents": prepared_contents}, call)

        if self.policy.cache_reads_to_artifacts:
            self._cache.put(uri, result, ttl=answer.get("ttl"), changes=changes)
        return result

    @property
    def subscriptions(self) -> frozenset[str]:
        """URIs of the current subscriptions."""
        return frozenset(self._subscribers)

    @short_traceback
    async def subscribe(self, uri: str, *, timeout: float | None = None) -> None:
        """Subscribe to ``notifications/resources/updated`` with ``{uri}``, which arrive as events of the session.

        The subscription is renewed when the connection is restored.
        """
        await self.subscribe_for(self, uri, timeout)

    @short_traceback
    async def unsubscribe(self, uri: str, *, timeout: float | None = None) -> None:
        """End a subscription."""
        await self.unsubscribe_for(self, uri, timeout)

    # --- for parts of a program that share the session ----------------------------------------------------------------

    def subscriptions_of(self, subscriber: object) -> frozenset[str]:
        return frozenset(uri for uri, subscribers in self._subscribers.items() if subscriber in subscribers)

    async def subscribe_for(self, subscriber: object, uri: str, timeout: float | None = None) -> None:
        """Subscribe for one of several subscribers, which all get the same events."""
        await self._request("resources/subscribe", {"uri": uri}, timeout)
        self._subscribers.setdefault(uri, set()).add(subscriber)

    async def unsubscribe_for(self, subscriber: object, uri: str, timeout: float | None = None) -> None:
        """End the subscription of one of several subscribers. The server learns only when the last one leaves."""
        subscribers = self._subscribers.get(uri, set())
        subscribers.discard(subscriber)
        if subscribers:
            return
        self._subscribers.pop(uri, None)
        await self._request("resources/unsubscribe", {"uri": uri}, timeout)

    # --- for the session ----------------------------------------------------------------------------------------------

    def with_generated(self, capabilities: Capabilities) -> Capabilities:
        """Return the app's capabilities, and the generated ones whose names no tool of the app has."""
        if not self.available:
            self.names = frozenset()
            return capabilities
        entries = [entry for entry in _GENERATED if entry["name"] not in capabilities]
        self.names = frozenset(str(entry["name"]) for entry in entries)
        return capabilities.merge(entries)

    async def call_generated(self, call: Call, params: Mapping[str, Any]) -> Result:
        if call.capability == "resources.read":
            return await self._read_resource(
                params["uri"],
                call,
                size=params.get("size"),
                fresh=params.get("fresh", False),
            )

        items, cursor = await self._list_page(call.capability, params.get("cursor"), call.timeout)
        _, key = _LISTS[call.capability]
        page: dict[str, object] = {key: items}
        if cursor is not None:
            page["nextCursor"] = cursor
        return await self._store_result(page, call)

    async def read_links(self, result: Result, call: Call) -> Result:
        """Read the small resource links of a result, if the policy allows that, for as long again as its call may take.

        Every other link gets ``fetched: false`` and a ``hint`` at ``resources.read``, or the reason why it could not be
        read as ``fetch_error``.
        """
        blocks = result.data.get("content") if isinstance(result.data, dict) else None
        if not self.policy.enabled or not isinstance(blocks, list):
            return result

        deadline = time.monotonic() + call.timeout
        artifacts = dict(result.artifacts)
        steps = list(result.steps)
        new_blocks: dict[Place, object] = {}
        for index, block in enumerate(blocks):
            if not isinstance(block, dict) or block.get("type") != "resource_link":
                continue
            new_block, files, log = await self._read_link(block, call, deadline)
            new_blocks["content", index] = new_block
            artifacts |= {f"content.{index}.{field}": ref for field, ref in files.items()}
            if log:
                steps.append(Step("resources", f"content.{index}", log))

        inline_fields = result.inline_fields | (artifacts.keys() - result.artifacts.keys())
        data = cast(JSONValue, replace_values(result.data, new_blocks))
        return changed(result, data=data, artifacts=artifacts, steps=tuple(steps), inline_fields=inline_fields)

    async def _read_link(
        self, block: Mapping[str, Any], call: Call, deadline: float
    ) -> tuple[dict[str, object], Mapping[str, ArtifactRef], str]:
        """Read the resource of a link if it is small. Return the new block of the link, the files of the contents by
        their places, and a note on what was done, which is empty if nothing was read."""
        small_link = self._small_link(block)
        if small_link is None:
            unread: dict[str, object] = {**block, "fetched": False}
            if self.available:
                unread["hint"] = "not read; resources.read (as a tool: abp_resources_read) reads it, with this uri"
            return unread, {}, ""

        uri, size = small_link
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            return {**block, "fetched": False, "fetch_error": "the links before it took all the time"}, {}, ""

        reading = Call(call.id, "resources.read", seconds_left)
        try:
            resource = await self._read_resource(uri, reading, size=size)
        except ABPError as error:
            new_block = {**block, "fetched": False, "fetch_error": error.message}
            return new_block, {}, f"could not be read: {error.message}"

        new_block = {**block, "fetched": True, "contents": members_of(resource.data).get("contents")}
        files = {field: resource.artifacts[field] for field in resource.inline_fields}
        return new_block, files, f"{size:,} bytes, read at once"

    def _small_link(self, block: Mapping[str, Any]) -> tuple[str, int] | None:
        """Return the address and the size of a linked resource that is to be read at once; ``None`` for any other."""
        uri = block.get("uri")
        size = block.get("size")
        if not self.available or not isinstance(uri, str) or not isinstance(size, int):
            return None
        if size >= self.policy.auto_read_if_size_under_bytes:
            return None
        return uri, size

    def on_notification(self, notification: Notification) -> None:
        self._cache.on_notification(notification)

    async def resubscribe(self) -> None:
        """Empty the cache and renew the subscriptions after a reconnection, all within one timeout: calls wait."""
        self._cache.clear()
        deadline = time.monotonic() + self._timeout_or_default(None)
        for uri in self.subscriptions:
            seconds_left = max(deadline - time.monotonic(), 0.001)
            try:
                await self._request("resources/subscribe", {"uri": uri}, seconds_left)
            except ABPError as error:
                logger.warning("changes of %s are no longer reported: %s", uri, error.message)

    def _require_resources(self) -> None:
        if not self.available:
            raise UsageError("this app has no resources", code="NOT_SUPPORTED")
        self._owner.require_same_loop()

    async def _request(self, method: str, params: Mapping[str, object], timeout: float | None) -> Mapping[str, Any]:
        self._require_resources()
        reply = await self._transport.request(Message(method, params), timeout=self._timeout_or_default(timeout))
        return reply.payload if isinstance(reply.payload, Mapping) else {}

    async def _list_page(
        self, capability: str, cursor: str | None, timeout: float | None
    ) -> tuple[Sequence[object], str | None]:
        """Return the entries of one page of a list, and the cursor of the next page, if there is one."""
        method, key = _LISTS[capability]
        try:
            page = await self._request(method, {"cursor": cursor}, timeout)
        except CapabilityError as error:
            method_not_found = -32601  # JSON-RPC 2.0 §5.1
            if error.details.get("code") == method_not_found:
                # Many servers have resources without templates, or templates without resources.
                return [], None
            raise
        return items_of(page.get(key)), page.get("nextCursor")

    async def _fetch_all(self, model: type[_T], capability: str, timeout: float | None) -> tuple[_T, ...]:
        if not self.available:
            return ()
        timeout = self._timeout_or_default(timeout)
        try:
            async with asyncio.timeout(timeout):
                return await self._fetch_pages(model, capability, timeout)
        except TimeoutError:
            raise no_answer(capability, timeout) from None

    async def _fetch_pages(self, model: type[_T], capability: str, timeout: float) -> tuple[_T, ...]:
        entries: list[_T] = []
        cursor: str | None = None
        # The list of a faulty server may never end.
        max_pages, entries_left = 1000, 100_000
        for _ in range(max_pages):
            items, cursor = await self._list_page(capability, cursor, timeout)
            entries += await in_thread(_parse_entries, model, items[:entries_left])
            entries_left -= len(items)
            if cursor is None and entries_left >= 0:
                return tuple(entries)
            if entries_left <= 0:
                break
        logger.warning("the app lists too many resources; all after the first %s are left out", f"{len(entries):,}")
        return tuple(entries)

    def _prepare_content(self, item: object, size: int | None) -> object:
        """Make binary data of a blob, with its announced ``size`` in bytes, and a file of a long text."""
        if not isinstance(item, dict):
            return item

        blob = item.get("blob")
        if isinstance(blob, BinaryData):
            return {**item, "blob": changed(blob, size=size)}
        if isinstance(blob, str):
            return {**item, "blob": BinaryData(Encoded(blob, "base64"), size=size)}

        text = item.get("text")
        if not isinstance(text, str):
            return item
        if size is not None:
            verify_size(size, len(text.encode(errors="surrogatepass")))
        if len(text) < self.policy.inline_text_if_under_chars or find(text):
            return item

        mime_type = item.get("mimeType")
        if not isinstance(mime_type, str) or not mime_type:
            mime_type = "text/plain"
        filename = last_segment(item.get("uri")) or None
        return {**item, "text": BinaryData(Encoded(text, "utf-8"), mime_type, filename=filename)}


def _parse_entries(model: type[_T], items: Sequence[object]) -> list[_T]:
    entries: list[_T] = []
    for item in items:
        try:
            entries.append(protocol.parse(model, item, "an entry of a list of resources"))
        except ProtocolError as error:
            logger.warning("%s; it is left out", error.message)
    return entries
