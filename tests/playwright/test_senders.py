"""Sites and cookies of the documents that answer: which cookies a browser sends in whose page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transports.playwright._page_transport import addresses_around, sender_of, sends_cookie
from transports.protocol.messages import Sender


def frame(*urls: str) -> Any:
    """A frame at the last address, in the others."""
    made = None
    for url in urls:
        made = SimpleNamespace(url=url, parent_frame=made)
    return made


def sender_in(made: Any, origin: str, *, page: str, domain: str) -> Sender:
    around = tuple(addresses_around([made]))
    return sender_of(made.url, origin, page_origin=page, page_domain=domain, around=around)


@pytest.mark.parametrize(
    ("urls", "domain", "third_party", "own_domain"),
    [
        (["https://a.app.example/x"], "app.example", False, "app.example"),
        (["https://a.app.example/", "https://b.app.example/x"], "app.example", False, "app.example"),
        (["https://a.app.example/", "https://b.app.example/x"], "", True, ""),  # nobody knows where the site ends
        (["https://a.app.example/", "https://notapp.example/x"], "app.example", True, ""),
        (["http://app.example/", "https://app.example/x"], "app.example", True, "app.example"),
        (["https://app.example/", "https://ads.example/", "https://app.example/x"], "app.example", True, "app.example"),
        (["https://app.example/", "about:srcdoc", "https://app.example/x"], "app.example", True, "app.example"),
        (["http://127.0.0.1:1/", "http://127.0.0.1:2/x"], "", False, ""),
        (["http://[::1]:1/", "http://[::1]:2/x"], "", False, ""),
    ],
)
def test_embedded_document_of_another_site_is_third_party(
    urls: list[str], domain: str, third_party: bool, own_domain: str
) -> None:
    origin, page = urls[-1].removesuffix("/x"), urls[0].removesuffix("/x").removesuffix("/")
    sender = sender_in(frame(*urls), origin, page=page, domain=domain)
    assert (sender.url, sender.third_party, sender.domain) == (urls[-1], third_party, own_domain)


def test_navigated_frame_sender_keeps_origin_but_not_url() -> None:
    sender = sender_in(
        frame("https://other.example/there"), "https://app.example", page="https://app.example", domain=""
    )
    assert (sender.url, sender.origin) == ("https://app.example/", "https://app.example")
    opaque = sender_in(
        frame("https://app.example/", "https://app.example/x"), "null", page="https://app.example", domain=""
    )
    assert (opaque.url, opaque.third_party) == ("https://app.example/x", True)


def test_site_cookies_go_to_own_pages_and_partitioned_ones_to_one_page() -> None:
    own = sender_in(
        frame("https://a.app.example/x"), "https://a.app.example", page="https://a.app.example", domain="app.example"
    )
    embedded = sender_in(frame("https://page.example/", "https://app.example/x"), "https://app.example",
                         page="https://page.example", domain="page.example")  # fmt: skip
    assert [sends_cookie(own, kind, None) for kind in ("Strict", "Lax", "None")] == [True, True, True]
    assert [sends_cookie(embedded, kind, None) for kind in ("Strict", "Lax", "None")] == [False, False, True]
    for partition, of in (("https://app.example", own), ("https://page.example", embedded)):
        assert sends_cookie(of, "None", partition) and not sends_cookie(of, "None", "https://ads.example")
