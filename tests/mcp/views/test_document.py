"""The policy of a view's document: which sources it takes, and what goes beside it (docs/views.md)."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from transports.mcp.views._document import ViewDocument, read_document

KINDS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")


def document(*sources: str) -> ViewDocument:
    """A view that declares the sources for all that there is."""
    ui = {"csp": {kind: list(sources) for kind in KINDS}}
    content = {"mimeType": "text/html;profile=mcp-app", "text": "<p>", "_meta": {"ui": ui}}
    return read_document("ui://a/b", {"contents": [content]})


@pytest.mark.parametrize(
    "source",
    [
        "localhost",
        "http://LocalHost:3000",
        "*.localhost",
        "ws://abp-view-0.localhost:*",
        "http://127.0.0.1:8000/path",
        "127.9.9.9",
        "127.1",
        "0x7f000001",
        "0X7F.1",
        "0177.0.0.1",
        "017700000001",
        "2130706433",
        "0",
        "0.0.0.0",
        "*.0.0.1",
        "[::1]",
        "https://[0:0:0:0:0:0:0:1]:443",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ],
)
def test_this_machine_is_no_source_in_any_spelling(source: str) -> None:
    view = document(source, "https://a.example")
    assert view.csp == {key: ["https://a.example"] for key in KINDS}
    assert [warning.partition(";")[0] for warning in view.warnings] == [
        f"the view's policy leaves out {kind} {source!r}: it is this machine, where views have their own origins"
        for kind in KINDS
    ]


@pytest.mark.parametrize(
    "source", ["localhost.example", "a-localhost", "1.1.1.1", "999.1", "127.0.0.1.example", "[2001:db8::1]", "*.com"]
)
def test_another_host_that_looks_alike_is_a_source(source: str) -> None:
    view = document(source)
    assert view.csp == {key: [source] for key in KINDS} and not view.warnings


def test_the_hosts_of_a_policy_are_those_that_may_be_connected_to() -> None:
    view = document("https://*.a.example:8443/x", "wss://b.example", "[2001:db8::1]", "data:")
    hosts = r'response-origin "*://*.a.example:*/*" "*://b.example:*/*" "*://[2001\\:db8\\:\\:1]:*/*"'
    assert view.policy_headers("declared")["Connection-Allowlist"] == f"({hosts});redirects=allow;webrtc=block"
    assert view.policy_headers("spec")["Connection-Allowlist"] == "(response-origin);redirects=allow;webrtc=block"
    for source in ("*", "https:", "wss://*", "*:*"):
        of_a_host = view.policy_headers("spec", {"connect-src": ["'self'", source]})
        assert of_a_host["Connection-Allowlist"] == '(response-origin "*://*:*/*");redirects=allow;webrtc=block'
    assert set(view.policy_headers("loose")) == {"Content-Security-Policy"}
