"""Headers and URLs, without a server."""

from email.utils import formatdate

import pytest

from tests.support.downloads import NOW
from tests.support.processor import BOUND, seconds
from tests.support.rows import each_row
from transports.protocol._http_dates import retry_after
from transports.routing.http import _headers as headers, _urls as urls


@pytest.mark.fault(42)
@each_row(
    ("value", "name"),
    [
        (None, None),
        ("inline", None),
        ("attachment; filename=plain.pdf", "plain.pdf"),
        ('attachment; filename="a;b \\"c\\".pdf"; x=y', 'a;b "c".pdf'),
        ("attachment; filename=\"EURO.pdf\"; filename*=UTF-8''%e2%82%ac%20rates.pdf", "€ rates.pdf"),
        ("attachment; FILENAME*=utf-8'en'a%2Fb; filename=c", "a/b"),
        ("attachment; filename*=iso-8859-1''%A3.txt", "£.txt"),
        ("attachment; filename*=UTF-8''%ff; filename=safe.txt", "safe.txt"),
        ("attachment; filename*=utf-7''x; filename=safe.txt", "safe.txt"),
        ("attachment; filename*=broken; filename=safe.txt", "safe.txt"),
        ('attachment; filename="../../etc/passwd"', "../../etc/passwd"),
        ("attachment; filename=\udce4.txt", "ä.txt"),
        ('attachment; filename="open', "open"),
        ("attachment; filename=", None),
        ("attachment;;; filename = x ;", "x"),
        ("attachment; filename*=UTF-8''XaX", "XaX"),
        ("attachment; filename*=\"UTF-8''a\"", "a"),
        ('attachment; filename="=?UTF-8?B?w6kudHh0?="', "é.txt"),
        ('attachment; filename="=?iso-8859-1?Q?=E9?= =?utf-8?q?_=C3=A9.txt?="', "é é.txt"),
        ('attachment; filename="=?nonsense?B?w6kudHh0?="', "=?nonsense?B?w6kudHh0?="),
        ('attachment; filename="=?utf-8?B?w6kud?="', "=?utf-8?B?w6kud?="),
        ('attachment; filename="a=?b.txt"', "a=?b.txt"),
        ('attachment; filename="%E4%BD%A0%20a+b.pdf"', "你 a+b.pdf"),
        ('attachment; filename="100%.pdf"', "100%.pdf"),
        ("attachment; filename=%E4.pdf", "%E4.pdf"),
        ("attachment; filename*=UTF-8''a%2520b.pdf; filename=c", "a%20b.pdf"),
    ],
)
def test_filename_is_parsed_from_header(value: str | None, name: str | None) -> None:
    assert headers.filename_of(value) == name


@each_row(
    "value",
    [
        "a" * 8000,
        ";" * 8000,
        '; filename="' + "\\" * 8000,
        "; filename=" * 700,
        "; filename=" + "=?a?Q?" * 1000,
        "; filename=" + "=?a?Q?" * 40_000,
    ],
)
def test_filename_parsing_is_fast(value: str) -> None:
    assert seconds(lambda: headers.filename_of(value)) < BOUND


@each_row(
    ("url", "origin"),
    [
        ("HTTP://App.Example/x", ("http", "app.example", 80)),
        ("https://app.example:443/", ("https", "app.example", 443)),
        ("http://münchen.example:8080", ("http", "xn--mnchen-3ya.example", 8080)),
        ("http://[::1]:3000/", ("http", "::1", 3000)),
        ("http://0x7f.1:3000/", ("http", "127.0.0.1", 3000)),
        ("file:///app/index.html", None),
        ("chrome-extension://abc/x.html", None),
        ("about:blank", None),
        (None, None),
    ],
)
def test_origin_of_url(url: str | None, origin: urls.Origin | None) -> None:
    assert urls.origin_of(url) == origin


@pytest.mark.parametrize(
    "url", ["ht\ttp://app.example/a", "\x01 http://app.example/a\x1f", "http://app.example:80/a#b"]
)
def test_urls_are_cleaned_as_in_browsers(url: str) -> None:
    assert str(urls.parse(url).url) == "http://app.example/a"
    assert urls.parse("https://app.example:443/a").url == urls.parse("https://app.example/a").url
    assert str(urls.parse("http://a.test/\udce4 ä?\udce4").url) == "http://a.test/%E4%20%C3%A4?%E4"


def test_retry_after_and_length_headers_are_parsed() -> None:
    assert retry_after(formatdate(NOW - 99, usegmt=True), NOW) == 0
    assert retry_after(formatdate(NOW + 90, usegmt=True), NOW) == 90
    assert retry_after(formatdate(NOW + 90), NOW) == 90  # -0000 in place of GMT
    assert retry_after(" 7 ", NOW) == 7
    for meaningless in ("-7", "soon", "", None):
        assert retry_after(meaningless, NOW) is None
    head = headers.Representation.from_headers({"Transfer-Encoding": "chunked", "Content-Length": "5"})
    assert (head.total, head.framed) == (None, True)
