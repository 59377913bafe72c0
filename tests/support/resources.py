"""An in-process app with resources, as an MCP server has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.apps import PDF, PNG, b64
from transports import CapabilityError, MemoryTransport
from transports.base import ResourcePage
from transports.memory import Handler
from transports.protocol.messages import Message

LONG = "a long text, line by line\n" * 2000


class ResourceApp(MemoryTransport):
    """Four resources on two pages. ``note:///broken`` cannot be read; other unknown addresses are not there."""

    def __init__(self, handlers: Mapping[str, Handler] | None = None) -> None:
        super().__init__(handlers or {})
        self.resources: dict[str, dict[str, Any]] = {
            "note:///a b?c=d": {"mimeType": "text/plain", "text": "short", "size": 5},
            "file:///x/report.pdf": {"mimeType": "application/pdf", "blob": b64(PDF), "size": len(PDF)},
            "note:///long": {"mimeType": "text/plain", "text": LONG},
            "file:///x/picture.png": {"mimeType": "image/png", "blob": b64(PNG)},
        }
        self.reads = 0
        self.subscribed: set[str] = set()

    @property
    def has_resources(self) -> bool:
        return True

    async def list_resources(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        listed = [
            {"uri": uri, "name": uri.rpartition("/")[2]} | {key: one[key] for key in ("mimeType", "size") if key in one}
            for uri, one in self.resources.items()
        ]
        return ResourcePage(listed[:3], "more") if cursor is None else ResourcePage(listed[3:])

    async def list_templates(self, cursor: str | None, *, timeout: float) -> ResourcePage:
        return ResourcePage([{"uriTemplate": "note:///{name}", "name": "note"}])

    async def read_resource(self, uri: str, *, timeout: float) -> Mapping[str, object]:
        self.reads += 1
        if uri == "note:///broken":
            raise CapabilityError("the disk is broken", details={"code": -32603})
        if uri not in self.resources:
            raise CapabilityError("there is no such resource", code="NOT_FOUND", details={"code": -32002})
        content = {key: value for key, value in self.resources[uri].items() if key != "size"}
        return {"contents": [{"uri": uri, **content}]}

    async def subscribe_resource(self, uri: str, *, timeout: float) -> None:
        self.subscribed.add(uri)

    async def unsubscribe_resource(self, uri: str, *, timeout: float) -> None:
        self.subscribed.discard(uri)

    def change(self, uri: str) -> None:
        """Notify subscribers that a resource has changed."""
        if uri in self.subscribed:
            self._notify("notifications/resources/updated", {"uri": uri})

    def change_list(self) -> None:
        """Notify the client that the list of resources has changed."""
        self._notify("notifications/resources/list_changed", None)

    def _notify(self, event: str, data: object) -> None:
        self.emit(Message("notification", {"event": event, "data": data}))
