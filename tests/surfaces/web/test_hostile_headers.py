"""Headers and bodies of requests that no client would send: each is answered as a request that is wrong."""

import logging
from pathlib import Path

import pytest

from tests.support.web_client import put_artifact, running
from transports.artifacts import LocalStore

#: A byte that is no UTF-8, as the helper sends it.
BYTE = "\udcff"
#: A parameter in pieces of which one has no number (RFC 2231): Python's own parser raises TypeError.
PIECES = "; filename*; filename*1=b"


async def test_headers_that_cannot_be_read_are_the_clients_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(LocalStore(tmp_path / "out"), {}) as web:
        ref = await put_artifact(web.store)
        port = web.netloc.rpartition(":")[2]
        signed_out = [
            f"GET /artifacts HTTP/1.1\nHost: HOST\nCookie: abp_serve_{port}={BYTE}",
            f"GET /artifacts HTTP/1.1\nHost: HOST\nCookie: abp_serve_{port}=a.{BYTE}",
            f"GET /artifacts HTTP/1.1\nHost: HOST\nAuthorization: Bearer {BYTE}",
            f"GET /artifacts HTTP/1.1\nHost: HOST\nAuthorization: Bearer abps.{BYTE}",
            f"GET /artifacts/{ref.id}?link={BYTE} HTTP/1.1\nHost: HOST",
            f"GET /artifacts/{ref.id}?link=%FF%ED%A0%80 HTTP/1.1\nHost: HOST",
        ]
        for head in signed_out:
            answer = await web.raw(head, token=False)
            assert answer.status in (400, 401, 404), (head, answer)
        secret = await web.post("/login", {"token": "\ud800"}, token=False)
        assert secret.status in (400, 401), secret
        signed_in = [
            f"POST /{path} HTTP/1.1\nHost: HOST\nContent-Type: {kind}{parameters}\nContent-Length: 2"
            for path in ("artifacts", "apps", "tokens")
            for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain")
            for parameters in (PIECES, f"; name={BYTE}", "; filename*=x'y", f"; charset*={BYTE}''{BYTE}")
        ]
        for head in signed_in:
            answer = await web.raw(head, b"{}")
            assert answer.status < 500, (head, answer)
        for parameters in (PIECES, "; name*1*=a'b", "; name*\u00b2=a", f"; name={BYTE}", "; filename*1*=''%ff"):
            lines = (
                f"Content-Disposition: form-data{parameters}",
                f"Content-Type: text/plain{PIECES}",
                "",
                "a",
                "--x--",
            )
            form = "\r\n".join(("--x", *lines))
            body = form.encode("utf-8", "surrogateescape")
            head = "POST /artifacts HTTP/1.1\nHost: HOST\nContent-Type: multipart/form-data; boundary=x"
            answer = await web.raw(f"{head}\nContent-Length: {len(body)}", body)
            assert answer.status in (400, 415, 422), (parameters, answer)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
