"""Evidence of a real page with password fields, which posts forms of each type: no file of it has a password."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.evidence import echo, failing_app, files_of
from tests.support.slow import slow_but
from transports import Browser, CapabilityError, Evidence, connect

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

_FORM, _PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
_HEAD, _END = "--B\r\nContent-Disposition: form-data; ", "\r\n--B--\r\n"
#: Posted bodies, with the type that the page declares, or none; tests/protocol/test_redaction.py has more names.
POSTS = {
    "form": (_FORM, "user=bob&password=HIDE"),
    "type in upper case": ("Application/X-WWW-Form-URLEncoded; Charset=UTF-8", "pass%77ord=HIDE"),
    "form without a type": (None, "user=bob&%70%61ssword=HIDE"),
    "form of another type": ("application/octet-stream", "pass%77ord=HIDE"),
    "form as plain text": ("text/plain", "user=bob\r\npassword=HIDE\r\n"),
    "part": (_PARTS, f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'),
    "part in upper case": ("Multipart/Form-Data; boundary=B", f'{_HEAD.upper()}NAME="PASSWORD"\r\n\r\nHIDE{_END}'),
    "part with bare line feeds": (_PARTS, f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'.replace("\r", "")),
    "part without a type": (None, f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'),
    "part of another type": ("application/octet-stream", f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'),
    "JSON": ("application/json", '{"user": {"password": "HIDE"}}'),
    "JSON without a type": (None, '{"password": ["HIDE"]}'),
    "HTML in JSON": ("application/json", json.dumps({"html": "<p>Hi</p><input type=password value='HIDE'>"})),
    "part in JSON": ("application/json", json.dumps({"body": f'{_HEAD}name="password"\r\n\r\nHIDE{_END}'})),
}
#: Fields of a page that the app loads, and shows in a frame.
FIELDS = {
    "plain field": "<input type=password value=HIDE>",
    "field in upper case": "<INPUT VALUE='HIDE' TYPE='PassWord'>",
    "field with a mark in an attribute": '<input value="HIDE" title="a > b" type="password">',
    "field with an escaped type": '<input value="HIDE" type="pass&#119;ord">',
    "field with spaces": '<input\n type\n =\n password value\t=\n "HIDE" />',
    "long field": f'<input type=password placeholder="{"p" * 5000}" value=HIDE>',
    "mark in a value": '<input type=password value="HIDE>">',
    "hidden field": '<input type=hidden name=api_token value="HIDE">',
    "field in a comment": "<!-- <a title=\" --><!-- <input type=password value='HIDE'> -->",
    "field without scripts": "<noscript><input type=password value=HIDE></noscript>",
    "field in a template": "<template><input type=password value=HIDE></template>",
    "meta": "<meta name=csrf-token content=HIDE>",
    "button": "<button name=access_token value=HIDE>Go</button>",
}
#: A script whose text only looks like fields and forms.
SCRIPT = """const html = `<input type="password" value="${field.kept}">`; if (a && password == b) token=a<b;"""
_PAGE = failing_app(
    "send",
    "<form><input type=password id=field value=FIXED></form>",
    'const field = document.getElementById("field");',
    """
  for (const [type, body] of POSTS) {
    const headers = type === null ? {} : { "Content-Type": type };
    await (await fetch("echo", { method: "POST", body, headers })).text();
  }
  const form = new FormData(document.createElement("form"));
  form.append("user", "bob");
  form.append("password", "FORMDATA");
  form.append("file", new Blob([new Uint8Array([255, 0, 128])]), "a.bin");
  await fetch("echo", { method: "POST", body: form });
  await (await fetch("fields")).text();
  const frame = document.createElement("iframe");
  frame.src = "fields";
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; });
  console.log("sent pass%77ord=CONSOLE and user[password]=CONSOLE");
  field.value = "TYPED";
  field.title = "changed";
  await new Promise((resolve) => setTimeout(resolve, 300));""",
)


def passwords(long: bool) -> dict[str, str]:
    """A password for each place that has one. A short one is known by its place alone, never by its value."""
    places = [*POSTS, *FIELDS, "FIXED", "FORMDATA", "CONSOLE", "TYPED"]
    return {place: f"zq{index:03}" + "Wx!7" * long for index, place in enumerate(places)}


@asynccontextmanager
async def form_page(values: dict[str, str]) -> AsyncIterator[str]:
    posts = [(mime_type, body.replace("HIDE", values[name])) for name, (mime_type, body) in POSTS.items()]
    html = _PAGE
    for place in ("FIXED", "FORMDATA", "CONSOLE", "TYPED"):
        html = html.replace(place, values[place])
    fields = "\n".join(field.replace("HIDE", values[name]) for name, field in FIELDS.items())

    html = html.replace("POSTS", json.dumps(posts).replace("</", "<\\/"))
    files = {
        "/": ("text/html", html),
        "/script.js": ("text/javascript", SCRIPT),
        "/fields": ("text/html", f"<!doctype html><title>F</title><script src=script.js></script>{fields}"),
    }

    async def send(request: web.Request) -> web.Response:
        content_type, text = files[request.path]
        return web.Response(text=text, content_type=content_type)

    app = web.Application()
    app.add_routes([*(web.get(path, send) for path in files), web.post("/echo", echo)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


def spellings(value: str) -> set[bytes]:
    shifted = (base64.b64encode(b"x" * before + value.encode())[4 if before else 0 : -4] for before in range(3))
    return {value.encode(), quote(value).encode(), *(one for one in shifted if len(one) >= 4)}


@pytest.mark.parametrize("long", slow_but([True, False], False))
async def test_form_passwords_are_not_in_evidence(tmp_path: Path, browser: Browser, long: bool) -> None:
    values = passwords(long)
    kept = Evidence(trace="on", har="on", console="on")
    async with (
        form_page(values) as url,
        connect(url, browser=browser, store=tmp_path / "out", evidence=kept) as app,
    ):
        with pytest.raises(CapabilityError) as failed:
            await app.call("send", {})
    refs: dict[str, Any] = {**failed.value.evidence}
    assert {*refs} == {"trace", "har", "console"}, failed.value.details
    shown = {
        (kind, place): name
        for kind, ref in refs.items()
        for name, data in files_of(ref)
        if not name.endswith(".jpeg")
        for place, value in values.items()
        if any(spelling in data for spelling in spellings(value))
    }
    assert not shown
    whole = b"".join(data for _, data in files_of(refs["trace"]))
    assert b"user=bob&password=" in whole and b"<INPUT VALUE=" in whole and b"Hi</p>" in whole
    har = b"".join(data for _, data in files_of(refs["har"]))  # a trace leaves scripts out
    assert json.dumps(SCRIPT)[1:-1].encode() in har
