"""The policy of a view's document: which sources it takes, and what goes beside it (docs/views.md)."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.rows import each_row
from transports import ProtocolError
from transports.mcp.views._document import ViewDocument, read_document

KINDS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")


TYPE = "text/html;profile=mcp-app"


def read(ui: object = None, **content: object) -> ViewDocument:
    content = {"mimeType": TYPE, "text": "<p>", "_meta": {"ui": ui}, **content}
    return read_document("ui://a/b", {"contents": [content]})


def document(*sources: object) -> ViewDocument:
    """A view that declares the sources for all that there is."""
    return read({"csp": {kind: list(sources) for kind in KINDS}})


@each_row(
    ("content", "why"),
    [
        ({"text": " " * ((8 << 20) + 1)}, "more than 8,388,608 characters"),
        ({"mimeType": "text/html"}, "is text/html; hosts show text/html;profile=mcp-app only"),
        ({"mimeType": ""}, "of no type"),
        ({"text": None, "blob": "%%%"}, "not UTF-8 in base64"),
        ({"text": None, "blob": "/w=="}, "not UTF-8 in base64"),
        ({"text": None}, "neither text nor blob"),
    ],
)
def test_unsupported_view_document_is_rejected(content: dict[str, object], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read(**content)


def test_view_document_of_8_mb_is_shown() -> None:
    assert len(read(text=" " * (8 << 20)).html) == 8 << 20


def test_invalid_csp_sources_are_dropped() -> None:
    injected = (
        "https://a.example; script-src *",
        "https://b.example\n; script-src *",
        "*",
        "https:",
        "'unsafe-eval'",
        "x" * 3000,
        7,
    )
    view = document("https://good.example", *injected, "https://*.example.org:8443")
    both = "https://good.example https://*.example.org:8443"
    assert view.policy("declared") == (
        f"default-src 'none'; script-src 'self' 'unsafe-inline' {both}; style-src 'self' 'unsafe-inline' {both}; "
        f"connect-src 'self' {both}; img-src 'self' data: {both}; font-src 'self' {both}; "
        f"media-src 'self' data: {both}; frame-src {both}; object-src 'none'; base-uri {both}"
    )
    assert len([text for text in view.warnings if "leaves out" in text]) == len(KINDS)
    view = document(*(f"https://a{n}.example" for n in range(101)))
    assert "https://a99.example;" in view.policy("declared") and "a100" not in view.policy("declared")
    assert any("after the first 100" in text for text in view.warnings)


def test_malformed_view_declarations_grant_nothing() -> None:
    view = read({"csp": "script-src *", "permissions": {"camera": {}, "everything": {}}})
    assert view.policy("declared") == (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; "
        "base-uri 'self'"
    )
    assert view.permissions == ["camera"]
    assert "csp is not an object" in view.warnings[0] and "everything" in view.warnings[1]
    view = read({"permissions": "camera"})
    assert view.permissions == [] and view.warnings == ["the view's permissions are not known: 'camera'"]


LOOPBACK = """localhost http://LocalHost:3000 *.localhost ws://abp-view-0.localhost:* http://127.0.0.1:8000/path
    127.9.9.9 127.1 0x7f000001 0X7F.1 0177.0.0.1 017700000001 2130706433 0 0.0.0.0 *.0.0.1 [::1] https://[0:0:0:0:0:0:0:1]:443
    [::] [::ffff:127.0.0.1] [::ffff:7f00:1]"""


@each_row("source", LOOPBACK.split())
def test_csp_drops_loopback_sources_in_any_spelling(source: str) -> None:
    view = document(source, "https://a.example")
    assert view.csp == {key: ["https://a.example"] for key in KINDS}
    assert [warning.partition(";")[0] for warning in view.warnings] == [
        f"the view's policy leaves out {kind} {source!r}: it is this machine, where views have their own origins"
        for kind in KINDS
    ]


OTHERS = "localhost.example a-localhost 1.1.1.1 999.1 127.0.0.1.example [2001:db8::1] *.com blob: data:"


@each_row("source", OTHERS.split())
def test_similar_looking_host_is_a_separate_csp_source(source: str) -> None:
    view = document(source)
    assert view.csp == {key: [source] for key in KINDS} and not view.warnings


def test_connection_allowlist_matches_hosts_of_view_policy() -> None:
    view = document("https://*.a.example:8443/x", "wss://b.example", "[2001:db8::1]", "data:")
    hosts = r'response-origin "*://*.a.example:*/*" "*://b.example:*/*" "*://[2001\\:db8\\:\\:1]:*/*"'
    assert view.policy_headers("declared")["Connection-Allowlist"] == f"({hosts});redirects=allow;webrtc=block"
    assert view.policy_headers("spec")["Connection-Allowlist"] == "(response-origin);redirects=allow;webrtc=block"
    for source in ("*", "https:", "wss://*", "*:*"):
        of_a_host = view.policy_headers("spec", {"connect-src": ["'self'", source]})
        assert of_a_host["Connection-Allowlist"] == '(response-origin "*://*:*/*");redirects=allow;webrtc=block'
    assert set(view.policy_headers("loose")) == {"Content-Security-Policy"}
