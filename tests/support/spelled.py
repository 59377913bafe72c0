"""A value in the spellings of Python's encoders, and content read by every decoder there is."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlencode


def _escaped(value: str) -> str:
    """A value as escapes of JSON, each UTF-16 unit of it."""
    units = value.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start] << 8 | units[start + 1]:04x}" for start in range(0, len(units), 2))


def _entities(value: str, form: str) -> str:
    return "".join(form.format(ord(character)) for character in value)


def _percent(value: str) -> str:
    return "".join(f"%{byte:02X}" for byte in value.encode())


def _basic(value: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'user:{value}'.encode()).decode()}, he said"


def _of_base64(encode: Callable[[bytes], bytes], before: int) -> Callable[[str], str]:
    return lambda value: encode(b"x" * before + value.encode() + b"yz").decode()


#: Spellings by their names, of any text that is UTF-8.
SPELLED: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "json": lambda value: json.dumps(value),
    "json, not ascii": lambda value: json.dumps(value, ensure_ascii=False),
    "json, \\u": _escaped,
    "json, \\U of hex in upper case": lambda value: re.sub(
        r"u(\w{4})", lambda it: "u" + it[1].upper(), _escaped(value)
    ),
    "quote": lambda value: quote(value),
    "quote all": lambda value: quote(value, safe=""),
    "quote_plus": quote_plus,
    "urlencode": lambda value: urlencode({"a": value}),
    "percent, lower case": lambda value: re.sub(r"%..", lambda it: it[0].lower(), quote(value, safe="")),
    "percent, every byte": _percent,
    "html.escape": lambda value: html.escape(value),
    "html.escape without quotes": lambda value: html.escape(value, quote=False),
    "html, decimal": lambda value: _entities(value, "&#{};"),
    "html, hexadecimal": lambda value: _entities(value, "&#x{:x};"),
    "html, upper case": lambda value: _entities(value, "&#X{:06X};"),
    "html, by names": lambda value: html.escape(value, quote=False).replace("'", "&apos;").replace('"', "&quot;"),
    "xmlcharrefreplace": lambda value: value.encode("ascii", "xmlcharrefreplace").decode(),
    "repr": repr,
    "repr of bytes": lambda value: repr(value.encode()),
    "base64 without padding": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "basic in a sentence": _basic,
    "hexadecimal": lambda value: value.encode().hex(),
    "hexadecimal in upper case": lambda value: value.encode().hex(":").upper(),
    **{f"base64 after {before} bytes": _of_base64(base64.b64encode, before) for before in range(3)},
    **{f"base64url after {before} bytes": _of_base64(base64.urlsafe_b64encode, before) for before in range(3)},
}

#: Expressions of JavaScript that spell `value`, by their names.
JAVASCRIPT: Mapping[str, str] = {
    "encodeURIComponent": "encodeURIComponent(value)",
    "encodeURI": "encodeURI(value)",
    "escape": "escape(value)",
    "URLSearchParams": "new URLSearchParams({ a: value }).toString()",
    "query of a URL": "(() => { const u = new URL('http://h/'); u.searchParams.set('a', value); return u.href; })()",
    "path of a URL": "(() => { const u = new URL('http://h/'); u.pathname = '/p/' + value; return u.href; })()",
    "fragment of a URL": "(() => { const u = new URL('http://h/'); u.hash = value; return u.href; })()",
    "password of a URL": "(() => { const u = new URL('http://h/'); u.password = value; return u.href; })()",
    "JSON": "JSON.stringify({ a: value })",
    "text of HTML": "(() => { const e = document.createElement('p'); e.textContent = value; return e.innerHTML; })()",
    "attribute of HTML":
        "(() => { const e = document.createElement('p'); e.title = value; return e.outerHTML; })()",
    "btoa": "btoa(unescape(encodeURIComponent('bob:' + value)))",
    "CSS.escape": "CSS.escape(value)",
    "code units":
        "value.split('').map((one) => '\\\\u' + one.charCodeAt().toString(16).padStart(4, '0')).join('')",
    "code points": "[...value].map((one) => '\\\\u{' + one.codePointAt(0).toString(16) + '}').join('')",
    "hexadecimal": "[...new TextEncoder().encode(value)].map((one) => one.toString(16).padStart(2, '0')).join(' ')",
}  # fmt: skip


def readings(text: str, depth: int = 3) -> Iterator[str]:
    """Yield what each decoder of Python makes of a text, and each of that: the reader that a thief would write."""
    yield text
    if not depth:
        return
    seen = {text}
    for read in (unquote, unquote_plus, html.unescape, _unescaped, lambda it: unquote(it, encoding="latin-1")):
        if (one := read(text)) not in seen:
            seen.add(one)
            yield from readings(one, depth - 1)
    for run in re.findall(r"[A-Za-z0-9+/_-]{8,}", re.sub(r"(?<=[\w+/])\r?\n(?=[\w+/])", "", text)):
        plain = run.replace("-", "+").replace("_", "/")
        for start in range(4):
            group = plain[start:]
            group = group[: len(group) - (len(group) % 4 == 1)]
            with_padding = base64.b64decode(group + "=" * (-len(group) % 4))
            yield from readings(with_padding.decode("utf-8", "replace"), min(depth - 1, 1))
    for run in re.findall(r"(?:[0-9A-Fa-f]{2}[ :,]?){6,}", text):
        digits = re.sub(r"[ :,]", "", run)
        for start in range(2):
            pairs = digits[start:]
            yield binascii.unhexlify(pairs[: len(pairs) // 2 * 2]).decode("utf-8", "replace")


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        try:
            return codecs.decode(found[0], "unicode_escape")
        except UnicodeDecodeError:
            return found[0]

    text = re.sub(r"\\u\{([0-9a-fA-F]{1,6})\}", lambda it: chr(min(int(it[1], 16), 0x10FFFF)), text)
    text = re.sub(r"\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\\'\"abfnrtv]|[0-3][0-7]{2})", one, text).replace("\\/", "/")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
