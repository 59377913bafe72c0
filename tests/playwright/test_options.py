"""Options of pages with tools and of adapters: what is refused before any browser starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import each_row
from transports import Browser, PlaywrightTransport, UsageError, WebMcpTransport, connect
from transports.playwright._scripts import read_adapter
from transports.protocol._plain_text import origin_of


def test_webmcp_transport_is_chosen_by_name_for_pages_only() -> None:
    assert isinstance(connect("http://app.example/", transport="webmcp", store="none:").transport, WebMcpTransport)
    assert isinstance(connect("http://app.example/", store="none:").transport, PlaywrightTransport)
    with pytest.raises(UsageError, match="unknown transport 'webmcp' for ws://; use 'websocket'"):
        connect("ws://app.example/", transport="webmcp", store="none:")


@each_row(
    ("options", "message"),
    [
        ({"cdp_url": "http://127.0.0.1:9/", "browser_server": "ws://127.0.0.1:9/"}, "are mutually exclusive"),
        ({"headers": {"X-Key": "value"}}, "headers= go to a browser that runs elsewhere; give cdp_url= or"),
    ],
)
def test_running_browser_has_one_address_and_headers_need_one(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Browser(**options)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://App.Example:80/x?y#z", "http://app.example"),
        ("https://user:pw@app.example:443/", "https://app.example"),
        ("https://app.example:8443/", "https://app.example:8443"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("https://bücher.example/", "https://xn--bcher-kva.example"),
    ],
)
def test_adapter_is_bound_to_normalized_origin(url: str, origin: str, tmp_path: Path) -> None:
    script = tmp_path / "own.js"
    script.write_text("// a comment without an end of line", encoding="utf-8")
    adapter = read_adapter(script, url)
    assert adapter.origin == origin_of(url) == origin
    assert f'"{origin}"' in adapter.source() and adapter.source().endswith("\n})")


def test_invalid_adapters_are_rejected(tmp_path: Path) -> None:
    binary = tmp_path / "binary.js"
    binary.write_bytes(b"\xff\xfe\x00")
    for target, path, reason in (
        ("http://app.example/", tmp_path / "missing.js", "No such file"),
        ("http://app.example/", binary, "not UTF-8 text"),
        ("http://app.example/", tmp_path, "not a regular file"),
        ("ws://app.example/abp", binary, "adapter= cannot be combined with"),
    ):
        with pytest.raises(UsageError, match=reason):
            connect(target, adapter=path, store="none:")
    with pytest.raises(UsageError, match="adapter= cannot be combined with"):
        connect("http://app.example/", transport="postmessage", adapter=binary, store="none:")
