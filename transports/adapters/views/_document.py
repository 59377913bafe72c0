"""The document of a view: its HTML, and what it may reach (MCP Apps, "UI Resource Format")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pybase64

from ...errors import ProtocolError
from ..mcp import VIEW_TYPE

CspMode: TypeAlias = Literal["declared", "spec", "loose"]
"""Policy of a view's document: as its server declares it, the one of the specification for views that declare nothing,
or one that forbids nothing but other origins' frames."""

#: Characters of a view's HTML.
_MAX_HTML = 32 << 20
#: Declared sources of each kind.
_MAX_SOURCES = 100
#: A source of a policy: a scheme, or a host with an optional scheme, wildcard, port and path (CSP 3, 2.3.1). It holds
#: nothing that ends the directive.
_SOURCE = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,30}:|(?:[a-z][a-z0-9+.-]{0,30}://)?[\w.*\[\]:-]{1,255}(?:/[^\s;,'\"]{0,500})?)", re.I
)
_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}


@dataclass(frozen=True, slots=True)
class ViewDocument:
    """The HTML of a view. ``csp`` maps ``connectDomains``, ``resourceDomains``, ``frameDomains`` and ``baseUriDomains``
    to sources; it is empty if the server declares nothing. ``permissions`` are names of the iframe's ``allow``."""

    uri: str
    html: str
    csp: Mapping[str, Sequence[str]]
    permissions: Sequence[str]

    def policy(self, mode: CspMode) -> str:
        """Return the content security policy of the document."""
        if mode == "loose":
            return "frame-ancestors *"
        declared = self.csp if mode == "declared" else {}
        resources = " ".join(declared.get("resourceDomains", ()))
        connect = " ".join(declared.get("connectDomains", ()))
        frames = " ".join(declared.get("frameDomains", ()))
        base = " ".join(declared.get("baseUriDomains", ()))
        return "; ".join(
            (
                "default-src 'none'",
                f"script-src 'self' 'unsafe-inline' {resources}".strip(),
                f"style-src 'self' 'unsafe-inline' {resources}".strip(),
                f"img-src 'self' data: {resources}".strip(),
                f"font-src 'self' data: {resources}".strip(),
                f"media-src 'self' data: {resources}".strip(),
                f"connect-src {connect or chr(39) + 'none' + chr(39)}",
                f"frame-src {frames or chr(39) + 'none' + chr(39)}",
                f"base-uri {base or chr(39) + 'self' + chr(39)}",
                "object-src 'none'",
            )
        )


def read_document(uri: str, result: Mapping[str, object]) -> ViewDocument:
    """Return the document in the result of ``resources/read``.

    Raises :class:`~transports.errors.ProtocolError` if there is none, if it has another type than
    ``text/html;profile=mcp-app``, or if it is longer than 32 MiB."""
    contents = result.get("contents")
    content = contents[0] if isinstance(contents, list) and contents and isinstance(contents[0], dict) else None
    if content is None:
        raise ProtocolError(f"the server has no document for the view {uri[:200]}")
    mime_type = str(content.get("mimeType", "")).replace(" ", "").lower()
    if mime_type != VIEW_TYPE:
        raise ProtocolError(
            f"the document of the view {uri[:200]} is {mime_type[:100] or 'of no type'}; hosts show {VIEW_TYPE} only"
        )
    html = _html(content, uri)
    meta = content.get("_meta")
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    declared = ui if isinstance(ui, Mapping) else {}
    return ViewDocument(uri, html, _sources(declared.get("csp")), _permissions(declared.get("permissions")))


def _html(content: Mapping[str, object], uri: str) -> str:
    text, blob = content.get("text"), content.get("blob")
    if isinstance(text, str):
        html = text
    elif isinstance(blob, str):
        try:
            html = pybase64.b64decode(blob, validate=True).decode()
        except ValueError as error:
            raise ProtocolError(f"the document of the view {uri[:200]} is not UTF-8 in base64") from error
    else:
        raise ProtocolError(f"the document of the view {uri[:200]} has neither text nor blob")
    if len(html) > _MAX_HTML:
        raise ProtocolError(f"the document of the view {uri[:200]} has more than {_MAX_HTML:,} characters")
    return html


def _sources(declared: object) -> dict[str, Sequence[str]]:
    """Return declared sources by kind. Other texts are left out: they could end their directive and begin another."""
    found: dict[str, Sequence[str]] = {}
    for kind in ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"):
        given = declared.get(kind) if isinstance(declared, Mapping) else None
        if isinstance(given, list):
            found[kind] = [one for one in given[:_MAX_SOURCES] if isinstance(one, str) and _SOURCE.fullmatch(one)]
    return found


def _permissions(declared: object) -> Sequence[str]:
    return [name for key, name in _PERMISSIONS.items() if isinstance(declared, Mapping) and key in declared]
