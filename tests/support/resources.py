"""An in-process app with resources, as an MCP server has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.apps import PDF, PNG, b64
from transports import CapabilityError, MemoryTransport
from transports.base import Features
from transports.memory import Handler
from transports.protocol.messages import Message

LONG = "a long text, line by line\n" * 2000


class ResourceApp(MemoryTransport):
    """Four resources on two pages. ``note:///broken`` cannot be read; other unknown addresses are not there."""

    features = Features(listing=True, resources=True)

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

    async def request(self, message: Message, *, timeout: float) -> Message:
        payload: Any = message.payload
        answer: object = {}
        match message.type:
            case "resources/list":
                answer = self._list(payload["cursor"])
            case "resources/templates/list":
                answer = {"resourceTemplates": [{"uriTemplate": "note:///{name}", "name": "note"}]}
            case "resources/read":
                answer = self._read(payload["uri"])
            case "resources/subscribe":
                self.subscribed.add(payload["uri"])
            case "resources/unsubscribe":
                self.subscribed.discard(payload["uri"])
            case _:
                return await super().request(message, timeout=timeout)
        return Message(f"{message.type}-result", answer, id=message.id)

    def _list(self, cursor: str | None) -> dict[str, object]:
        resources = [
            {"uri": uri, "name": uri.rpartition("/")[2]}
            | {key: resource[key] for key in ("mimeType", "size") if key in resource}
            for uri, resource in self.resources.items()
        ]
        return {"resources": resources[:3], "nextCursor": "more"} if cursor is None else {"resources": resources[3:]}

    def _read(self, uri: str) -> dict[str, object]:
        self.reads += 1
        if uri == "note:///broken":
            raise CapabilityError("the disk is broken", details={"code": -32603})
        if uri not in self.resources:
            raise CapabilityError("there is no such resource", code="NOT_FOUND", details={"code": -32002})
        content = {key: value for key, value in self.resources[uri].items() if key != "size"}
        return {"contents": [{"uri": uri, **content}]}

    def change(self, uri: str) -> None:
        """Notify subscribers that a resource has changed."""
        if uri in self.subscribed:
            self._notify("notifications/resources/updated", {"uri": uri})

    def change_list(self) -> None:
        """Notify the client that the list of resources has changed."""
        self._notify("notifications/resources/list_changed", None)

    def _notify(self, event: str, data: object) -> None:
        self.emit(Message("notification", {"event": event, "data": data}))
