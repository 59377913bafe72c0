"""The document of a view: its HTML, and what it may reach (MCP Apps, "UI Resource Format")."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pybase64

from ...errors import ProtocolError
from .._connection import VIEW_TYPE

CspMode: TypeAlias = Literal["declared", "spec", "loose"]
"""Policy of a view's document: ``declared`` by its server, the one of the specification (``spec``) for views that
declare nothing, or a ``loose`` one that forbids hardly anything."""

#: A declared source: an origin or a host, which may begin with ``*.``, or content of the view itself. It holds nothing
#: that ends its directive. ``*`` and the scheme of a network name no domain.
_SOURCE = re.compile(
    r"data:|blob:|(?:(?:https?|wss?)://)?(?P<host>(?:\*\.)?[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){0,20}|\[[0-9a-f:.]{2,45}\])"
    r"(?::(?:\d{1,5}|\*))?(?:/[\w./%~-]{0,500})?",
    re.I,
)
#: The last label of an IPv4 address in any spelling of browsers: 127.0.0.1, 127.1, 0x7f000001.
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
#: A source that every host matches.
_ANY_HOST = re.compile(r"(?:https?|wss?):|(?:(?:https?|wss?)://)?\*(?::(?:\d+|\*))?", re.I)
#: The policy of views that declare nothing, word for word (MCP Apps, "Host Behavior"), and what the specification
#: forbids to all views that declare nothing else.
_RESTRICTIVE = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; base-uri 'self'"
)
#: The policy of other views: the sources of a directive, and the kind of declared sources that are added to them.
_DECLARED: Mapping[str, tuple[str, str]] = {
    "default-src": ("'none'", ""),
    "script-src": ("'self' 'unsafe-inline'", "resourceDomains"),
    "style-src": ("'self' 'unsafe-inline'", "resourceDomains"),
    "connect-src": ("'self'", "connectDomains"),
    "img-src": ("'self' data:", "resourceDomains"),
    "font-src": ("'self'", "resourceDomains"),
    "media-src": ("'self' data:", "resourceDomains"),
    "frame-src": ("", "frameDomains"),
    "object-src": ("'none'", ""),
    "base-uri": ("", "baseUriDomains"),
}
#: Sources of the directives that have none otherwise.
_DEFAULTS = {"frame-src": "'none'", "base-uri": "'self'"}
_ORIGIN = re.compile(r"(?:https?|wss?)://[^/?#]{1,300}")
_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}


@dataclass(frozen=True, slots=True)
class ViewDocument:
    """HTML document of a view, as its server gave it. ``csp`` is ``None`` if the server declares none. ``permissions``
    are names of the iframe's ``allow``."""

    uri: str
    html: str
    csp: Mapping[str, Sequence[str]] | None
    permissions: Sequence[str]
    warnings: Sequence[str] = ()

    def policy(self, mode: CspMode, granted: Mapping[str, Sequence[str]] | None = None) -> str:
        """Write the Content-Security-Policy of this document. ``granted`` are sources that a host allows to all
        views."""
        if mode == "loose":
            return "frame-ancestors *"
        declared_sources = self.csp if mode == "declared" else None
        directives = dict(_directives(declared_sources))
        for name, sources in (granted or {}).items():
            # 'none' is valid only as the single source of a directive.
            earlier_sources = [source for source in directives.get(name, "").split() if source != "'none'"]
            directives[name] = " ".join(dict.fromkeys((*earlier_sources, *sources)))
        return "; ".join(f"{name} {sources}" for name, sources in directives.items())

    def policy_headers(
        self, mode: CspMode, granted: Mapping[str, Sequence[str]] | None = None, further: Sequence[str] = ()
    ) -> dict[str, str]:
        """Make headers for all responses, also errors: a frame without them would free the view from its policy."""
        policy = self.policy(mode, granted)
        headers = {"Content-Security-Policy": "; ".join((policy, *further))}
        if mode != "loose":
            headers["Connection-Allowlist"] = _allowlist(policy)
        return headers


def _allowlist(policy: str) -> str:
    """Write the header Connection-Allowlist, which restricts what the policy does not cover in Chromium: WebRTC, DNS
    prefetches and preconnects."""
    # A dict as an ordered set.
    hosts: dict[str, None] = {}
    for directive in policy.split(";"):
        _, *sources = directive.split()
        for source in sources:
            match = _SOURCE.fullmatch(source)
            if _ANY_HOST.fullmatch(source):
                hosts["*"] = None
            elif match is not None and match["host"]:
                escaped_host = match["host"].replace(":", r"\\:")
                hosts[escaped_host] = None

    patterns = "".join(f' "*://{host}:*/*"' for host in hosts)
    return f"(response-origin{patterns});redirects=allow;webrtc=block"


def _directives(csp: Mapping[str, Sequence[str]] | None) -> Iterator[tuple[str, str]]:
    """Yield the directives of a policy with their sources. ``csp`` are the declared sources, if there are any."""
    if csp is None:
        for directive in _RESTRICTIVE.split("; "):
            name, _, sources = directive.partition(" ")
            yield name, sources
        return
    for name, (fixed_sources, kind) in _DECLARED.items():
        sources = " ".join((*fixed_sources.split(), *csp.get(kind, ())))
        yield name, sources or _DEFAULTS[name]


def read_document(uri: str, result: Mapping[str, object], listed: Mapping[str, object] | None = None) -> ViewDocument:
    """Read the document of a view from the ``result`` of reading its resource. ``listed`` is the resource's entry in
    the server's list, whose settings apply if the document declares none.

    Raises :class:`~transports.errors.ProtocolError`, also for a document of more than 8 MiB."""
    match result.get("contents"):
        case [dict(content), *_]:
            pass
        case _:
            raise ProtocolError(f"the server has no document for the view {uri[:200]}")

    mime_type = str(content.get("mimeType", "")).replace(" ", "").lower()
    if mime_type != VIEW_TYPE:
        raise ProtocolError(
            f"the document of the view {uri[:200]} is {mime_type[:100] or 'of no type'}; hosts show {VIEW_TYPE} only"
        )
    html = _html_of(content, uri)

    warnings: list[str] = []
    ui = declared_ui(content)
    if ui is None:
        ui = declared_ui(listed or {}) or {}
    csp = _sources(ui.get("csp"), warnings)
    return ViewDocument(uri, html, csp, _permissions(ui.get("permissions"), warnings), warnings)


def declared_ui(resource: Mapping[str, object]) -> Mapping[str, object] | None:
    match resource:
        case {"_meta": {"ui": Mapping() as ui}}:
            return ui
    return None


def _html_of(content: Mapping[str, object], uri: str) -> str:
    text = content.get("text")
    blob = content.get("blob")
    if isinstance(text, str):
        html = text
    elif isinstance(blob, str):
        try:
            html = pybase64.b64decode(blob, validate=True).decode()
        except ValueError as error:
            raise ProtocolError(f"the document of the view {uri[:200]} is not UTF-8 in base64") from error
    else:
        raise ProtocolError(f"the document of the view {uri[:200]} has neither text nor blob")

    limit = 8 << 20
    if len(html) > limit:
        raise ProtocolError(f"the document of the view {uri[:200]} has more than {limit:,} characters")
    return html


def _sources(declared: object, warnings: list[str]) -> dict[str, Sequence[str]] | None:
    """Read the declared sources by their kind. Texts that are not sources are left out: they could end their directive
    and begin another one. ``warnings`` gets a text for what is left out."""
    if declared is None:
        return None
    if not isinstance(declared, Mapping):
        warnings.append("the view's csp is not an object; it gets the policy of views that declare nothing")
        return None

    max_domains = 100
    sources: dict[str, Sequence[str]] = {}
    for kind in ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"):
        domains = declared.get(kind, [])
        if not isinstance(domains, list):
            domains = [domains]

        sources[kind], refused = _sort_domains(domains[:max_domains])
        if refused:
            warnings.append(f"the view's policy leaves out {kind} {refused[0]}")
        if len(domains) > max_domains:
            warnings.append(f"the view's policy leaves out {kind} after the first {max_domains}")
    return sources


def _sort_domains(domains: Sequence[Any]) -> tuple[list[str], list[str]]:
    allowed_domains: list[str] = []
    refused: list[str] = []
    for domain in domains:
        reason = _why_refused(domain)
        if reason:
            refused.append(f"{domain!r:.100}: {reason}")
        else:
            allowed_domains.append(domain)
    return allowed_domains, refused


def policy_remedy(directive: str, address: str) -> str:
    """Say what a view's author can do if ``directive`` forbids ``address``."""
    _, kind = _DECLARED.get(directive.removesuffix("-elem").removesuffix("-attr"), ("", ""))
    origin = _ORIGIN.match(address)
    if not kind or origin is None:
        return "no declared domain allows it: put it into the document, or do without it"
    reason = _why_refused(origin[0])
    if reason:
        return f"{origin[0]} cannot be declared: {reason}"
    return f"declare {origin[0]} in _meta.ui.csp.{kind} of the resource"


def _why_refused(domain: object) -> str:
    """Say why a view may not declare this domain. The text is empty for an allowed domain."""
    source = _SOURCE.fullmatch(domain) if isinstance(domain, str) else None
    if source is None:
        return "it is not an origin"
    if _is_this_machine((source["host"] or "").lower()):
        return 'it is this machine, where views have their own origins; csp="loose" allows it in tests'
    return ""


def _is_this_machine(host: str) -> bool:
    """Whether a declared host may be this machine, as a wildcard may. Names are not looked up."""
    name = host.removeprefix("*.")
    if name == "localhost" or name.endswith(".localhost"):
        return True

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    try:
        if name.startswith("["):
            address = ipaddress.IPv6Address(name.strip("[]"))
            address = address.ipv4_mapped or address
        elif _NUMBER.fullmatch(name.rpartition(".")[2]):
            address = ipaddress.IPv4Address(socket.inet_aton(name))
        else:
            return False
    except (OSError, ValueError):
        # Browsers cannot read this address either.
        return False

    has_wildcard = host != name
    return has_wildcard or address.is_loopback or address.is_unspecified


def _permissions(declared: object, warnings: list[str]) -> Sequence[str]:
    if declared is None:
        return []
    if not isinstance(declared, Mapping):
        warnings.append(f"the view's permissions are not known: {declared!r:.100}")
        return []

    unknown = [str(key)[:100] for key in declared if key not in _PERMISSIONS]
    if unknown:
        warnings.append(f"the view's permissions are not known: {unknown[0]}")
    return [name for key, name in _PERMISSIONS.items() if key in declared]
