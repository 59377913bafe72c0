"""Access to the web server: hosts, origins, tokens, cookies, sessions, links."""

import io
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from tests.support.processor import BOUND, longest_turn
from tests.support.web_client import TOKEN, Web, put_artifact, running
from transports import UsageError
from transports.artifacts import ArtifactStore, MemoryStore, Scope
from transports.artifacts._signing import MAX_SECONDS, Expired, Signer, find_server, registered, signing_key
from transports.errors import StoreError
from transports.surfaces.web._access import Options
from transports.surfaces.web._artifacts import make_link
from transports.surfaces.web._server import serve

# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_every_route_needs_a_token(web: Web) -> None:
    ref = await put_artifact(web.store)
    app = await web.connect()
    closed = [
        ("GET", "/artifacts"), ("POST", "/artifacts"),
        ("GET", f"/artifacts/{ref.id}"), ("HEAD", f"/artifacts/{ref.id}"),
        ("GET", f"/artifacts/{ref.id}/meta"), ("DELETE", f"/artifacts/{ref.id}"), ("GET", "/artifacts/unknown"),
        ("POST", f"/artifacts/{ref.id}/verify"), ("POST", f"/artifacts/{ref.id}/link"), ("GET", "/events"),
        ("GET", "/calls"), ("GET", "/calls/x"), ("DELETE", "/calls/x"), ("POST", "/calls/x/answer"), ("GET", "/apps"),
        ("POST", "/apps"), ("DELETE", f"/apps/{app}"), ("GET", f"/apps/{app}/capabilities/x"),
        ("POST", f"/apps/{app}/calls"), ("GET", "/metrics"), ("POST", "/tokens"),
        ("GET", f"/resources/{app}"), ("POST", f"/resources/{app}"),
        ("GET", f"/resources/{app}/a%3A%2F%2Fb"),
    ]  # fmt: skip
    wrong = ({"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Cookie": "abp_serve=x"})
    for access in ({}, *wrong):
        for method, path in closed:
            answer = await web.ask(method, path, token=False, headers=access)
            assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer", (method, path, access)
    assert (await web.get("/healthz", token=False)).json == {"status": "ok"}
    assert len(await web.store.list()) == 1 and app in web.served.activity.apps


@pytest.mark.fault(49)
async def test_foreign_hosts_and_origins_are_rejected(web: Web) -> None:
    port = web.netloc.rpartition(":")[2]

    async def status(host: str, *lines: str, method: str = "GET") -> int:
        head = "\n".join((f"{method} /artifacts HTTP/1.1", f"Host: {host}", *lines))
        return (await web.raw(head)).status

    assert await status("HOST") == await status(f"localhost:{port}") == await status(f"[::1]:{port}") == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "10.0.0.1", "a@127.0.0.1",
                 "localhost.", "127.0.0.1:x", "", "[::1", "0.0.0.0"):  # fmt: skip
        assert await status(host) in (400, 421), host
    assert await status("HOST", "Origin: http://HOST") == 200
    for origin in ("null", "http://evil.example", "http://127.0.0.1:1", f"http://localhost:{port}", "file://"):
        assert await status("HOST", f"Origin: {origin}") == 403, origin
        assert await status("HOST", f"Origin: {origin}", "Content-Length: 0", method="POST") == 403, origin


async def test_login_cookie_replaces_token_on_same_origin(web: Web) -> None:
    ref = await put_artifact(web.store)
    refused = await web.post("/login", {"token": "wrong"}, token=False)
    assert refused.status == 401 and "set-cookie" not in refused.headers
    cookie = (await web.post("/login", {"token": TOKEN}, token=False)).headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and TOKEN not in cookie
    named = cookie.partition(";")[0]
    assert web.netloc.rpartition(":")[2] in named  # cookies do not tell ports apart

    async def status(**more: str) -> int:
        headers = {"Cookie": named, **{name.replace("_", "-"): value for name, value in more.items()}}
        return (await web.get(f"/artifacts/{ref.id}", token=False, headers=headers)).status

    assert await status() == await status(Sec_Fetch_Site="same-origin") == await status(Sec_Fetch_Site="none") == 200
    # an app on another port of this machine is the same site, and a browser sends the cookie along
    assert await status(Sec_Fetch_Site="same-site") == await status(Sec_Fetch_Site="cross-site") == 401
    async with running(web.store) as again:  # the same token and key: the page goes on after a restart
        path = f"/artifacts/{ref.id}"
        cookie = named.replace(web.netloc.rpartition(":")[2], again.netloc.rpartition(":")[2])
        assert (await again.get(path, token=False, headers={"Cookie": cookie})).status == 200
    async with running(web.store, token="another-token-than-before") as other:
        cookie = named.replace(web.netloc.rpartition(":")[2], other.netloc.rpartition(":")[2])
        assert (await other.get(path, token=False, headers={"Cookie": cookie})).status == 401
    logins = [await web.post("/login", {"token": TOKEN}, token=False) for _ in range(2)]  # within a second
    named, another = (login.headers["set-cookie"].partition(";")[0] for login in logins)
    out = await web.post("/logout", token=False, headers={"Cookie": named})
    assert out.status == 204 and "Max-Age=0" in out.headers["set-cookie"]
    assert await status() == 401
    assert (await web.get("/artifacts", token=False, headers={"Cookie": another})).status == 200


async def test_form_sendable_bodies_are_rejected(web: Web) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = await web.post("/login", data=b'{"token":"x"}', token=False, headers={"Content-Type": kind})
        assert answer.status == 415
    headers = {"Content-Type": "application/json"}
    for body in (b"[]", b"nonsense", b"NaN", b'{"a":1e999}', b"[" * 10000):
        assert (await web.post("/tokens", data=body, headers=headers)).status == 400
    assert (await web.post("/tokens", data=io.BytesIO(bytes(17 << 20)), headers=headers)).status == 413


async def test_serving_beyond_localhost_requires_explicit_token(store: ArtifactStore) -> None:
    with pytest.raises(UsageError, match="--token"):
        async with serve(store, Options(), host="0.0.0.0"):
            pass
    with pytest.raises(UsageError, match="ABP_SERVE_TOKEN: a secret needs 16"):
        Options.load(token="short")
    async with running(store, host="0.0.0.0") as web:  # any of the machine's addresses, but no foreign name
        for host, status in (("192.168.7.7", 200), ("localhost", 200), ("evil.example", 421)):
            assert (await web.raw(f"GET /artifacts HTTP/1.1\nHost: {host}")).status == status


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-6.3e", "R2-7.2b")
async def test_session_guest_sees_only_its_own_artifacts(web: Web) -> None:
    mine, theirs = await web.connect(), await web.connect()
    visible = await put_artifact(web.store.scoped(Scope(session=mine)), b"mine")
    other = await put_artifact(web.store.scoped(Scope(session=theirs)), b"theirs")
    nobodys = await put_artifact(web.store, b"nobody's")
    guest = await web.guest(session=mine, expires=60)
    assert (await guest.get(f"/artifacts/{visible.id}")).body == b"mine"
    unknown = await guest.get("/artifacts/artifact_000000000000")
    for ref in (other, nobodys):
        for method, rest in (("GET", ""), ("HEAD", ""), ("GET", "/meta"), ("DELETE", ""), ("POST", "/verify"),
                             ("POST", "/link")):  # fmt: skip
            answer = await guest.ask(method, f"/artifacts/{ref.id}{rest}")
            assert answer.status == 404, (method, rest)
            if method == "GET" and not rest:  # no word tells it from one that never was
                same = unknown.body.replace(b"artifact_000000000000", ref.id.encode())
                assert answer.body == same
    assert [meta["id"] for meta in (await guest.get("/artifacts")).json["artifacts"]] == [visible.id]
    assert (await guest.get(f"/artifacts?session={theirs}")).json["artifacts"] == []
    assert [app["session"] for app in (await guest.get("/apps")).json["apps"]] == [mine]
    assert (await guest.ask("DELETE", f"/apps/{theirs}")).status == 404
    assert (await guest.post(f"/apps/{theirs}/calls", {"capability": "x"})).status == 404
    (uploaded,) = (await guest.post("/artifacts", data=b"new")).json["artifacts"]
    assert uploaded["session"] == mine
    for method, path, body in (("POST", "/tokens", {"session": "x"}), ("POST", "/apps", {"url": "http://x/"}),
                               ("GET", "/metrics", None)):  # fmt: skip
        assert (await guest.ask(method, path, json=body)).status == 403
    assert len(await web.store.list()) == 4


async def test_session_tokens_expire(store: ArtifactStore) -> None:
    now = [1_000_000.0]
    ref = await put_artifact(store.scoped(Scope(session="s")))
    async with running(store, signer=Signer("k" * 32, clock=lambda: now[0])) as web:
        token = (await web.post("/tokens", {"session": "s", "expires": 60})).json
        assert token["expires_at"] == "1970-01-12T13:47:40Z"
        guest = web.with_token(token["token"])
        assert (await guest.get("/artifacts")).status == 200
        link = await guest.post(f"/artifacts/{ref.id}/link", {"expires": 3600})
        assert link.json["expires_at"] == token["expires_at"]
        login = await guest.post("/login", {"token": token["token"]}, token=False)
        cookie = {"Cookie": login.headers["set-cookie"].partition(";")[0]}
        assert (await web.get("/artifacts", token=False, headers=cookie)).status == 200
        now[0] += 61
        assert (await guest.get("/artifacts")).status == 401
        assert (await web.get("/artifacts", token=False, headers=cookie)).status == 401
        assert (await web.with_token(token["token"][:-2] + "xx").get("/artifacts")).status == 401
        for bad in ({}, {"session": ""}, {"session": "s", "expires": -1}, {"session": "s", "expires": True},
                    {"session": "s", "expires": 1e9}, {"session": "x" * 300}, {"session": 5}):  # fmt: skip
            assert (await web.post("/tokens", bad)).status == 400


@pytest.mark.requirement("R2-7.2b")
async def test_tenant_sees_only_its_own_data(store: ArtifactStore) -> None:
    tenants = "acme=token-of-acme-0123, other=token-of-other-012"
    async with running(store, {}, tenants=tenants, named=["crm"]) as web:
        acme, other = (web.with_token(part.partition("=")[2]) for part in tenants.split(", "))
        ann = await web.guest(tenant="acme", user="ann", expires=60)
        app = (await web.post("/apps", {"url": "crm", "tenant": "acme", "user": "ann"})).json["session"]
        assert [app["signed_in_as"] for app in (await acme.get("/apps")).json["apps"]] == ["ann"]
        assert (await web.get("/apps")).json["names"] == ["crm"] and (await acme.get("/apps")).json["names"] == []
        (shared,) = (await acme.post("/artifacts", data=b"of the tenant")).json["artifacts"]
        (anns,) = (await ann.post("/artifacts", data=b"of Ann")).json["artifacts"]
        assert (await web.get(f"{shared['url']}/meta")).json["scope"] == {"tenant": "acme"}
        meta = (await acme.get(f"{anns['url']}/meta")).json
        assert meta["scope"] == {"tenant": "acme", "user": "ann"} and meta["source"]["capability"] == "upload"
        for visitor, seen in ((acme, [200, 200, 200]), (ann, [404, 200, 200]), (other, [404, 404, 404])):
            paths = (shared["url"], anns["url"], f"/resources/{app}")
            assert [(await visitor.get(path)).status for path in paths] == seen
        login = await ann.post("/login", {"token": ann.token}, token=False)  # a cookie keeps the scope
        cookie = {"Cookie": login.headers["set-cookie"].partition(";")[0]}
        assert (await web.get(anns["url"], token=False, headers=cookie)).status == 200
        assert (await web.get(shared["url"], token=False, headers=cookie)).status == 404
        assert (await other.get("/apps")).json["apps"] == []
        assert (await acme.post("/tokens", {"tenant": "other"})).status == 403
    for bad in ("acme", "=token-of-acme-0123", "acme=short", "a=token-of-acme-0123,b=token-of-acme-0123"):
        with pytest.raises(ValueError, match=r"(?i)token"):
            Options(tenants=bad)


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-5.6b", "R2-7.2d")
async def test_signed_link_opens_one_artifact_until_it_expires(store: ArtifactStore) -> None:
    now = [2_000_000_000.0]
    ref, other = await put_artifact(store), await put_artifact(store, b"other")
    async with running(store, signer=Signer("k" * 32, clock=lambda: now[0])) as web:
        made = await web.post(f"/artifacts/{ref.id}/link", {"expires": 60})
        assert made.status == 201 and made.json["expires_at"] == "2033-05-18T03:34:20Z"
        url = made.json["url"]
        opened = await web.get(url, token=False, headers={"Range": "bytes=2-3", "Sec-Fetch-Site": "cross-site"})
        assert (opened.status, opened.body) == (206, b"23")
        assert (await web.ask("HEAD", url, token=False)).status == 200
        for method in ("DELETE", "POST"):
            assert (await web.ask(method, url, token=False)).status in (401, 405)
        assert (await web.get(url.replace("?", "/meta?"), token=False)).status == 401
        assert (await web.get(url.replace(ref.id, other.id), token=False)).status == 404
        for n in range(0, len(url.partition("link=")[2]) - 1, 7):  # whichever letter is changed
            head, _, signed = url.partition("link=")
            letter = "A" if signed[n] != "A" else "B"
            answer = await web.get(f"{head}link={signed[:n]}{letter}{signed[n + 1 :]}", token=False)
            assert answer.status == 404, n
        for nonsense in ("", "a.b", "e30.x", "%00", "." * 500):
            assert (await web.get(f"/artifacts/{ref.id}?link={nonsense}", token=False)).status == 404
        forged = Signer("j" * 32, clock=lambda: now[0]).link_path(ref.id, now[0] + 60)
        assert (await web.get(forged, token=False)).status == 404
        now[0] += 60
        over = await web.get(url, token=False)
        assert (over.status, over.code) == (410, "REFERENCE_EXPIRED")
        await store.delete(ref.id)
        now[0] -= 30
        assert (await web.get(url, token=False)).status == 404
    # what is signed for one thing is not good for another
    token = Signer("k" * 32).scope_token('{"session": "s"}', 4e9)
    assert not Signer("k" * 32).is_link_to(token.removeprefix("abps."), "s")


class SigningStore(MemoryStore):
    async def presigned(self, artifact_id: str, seconds: float) -> str | None:
        return f"https://bucket.example/{artifact_id}?{seconds:g}"


async def test_links_made_by_another_process_need_running_server_or_store_that_makes_one(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await put_artifact(store)
    monkeypatch.delenv("ABP_SERVE_KEY", raising=False)
    with pytest.raises(UsageError, match="abp serve"):
        await make_link(store, ref.id, "1h", None)
    async with running(store, key=None) as web:
        url, _ = await make_link(store, ref.id, "1h", None)
        assert url.startswith(web.served.url) and (await web.get(url, token=False)).body == b"0123456789"
        url, _ = await make_link(store, ref.id, "30m", "https://files.example/abp/")
        assert url.startswith(f"https://files.example/abp/artifacts/{ref.id}?link=")
        with pytest.raises(UsageError, match="no server of this store"):
            other = MemoryStore()
            await make_link(other, (await put_artifact(other)).id, "1h", None)
        for expires in ("", "0s", "-1h", "31d", "1y", "1.5h"):
            with pytest.raises(UsageError, match="--expires"):
                await make_link(store, ref.id, expires, None)
    assert find_server(store.url) is None
    signed = await put_artifact(signing := SigningStore())
    assert (await make_link(signing, signed.id, "10m", None))[0] == f"https://bucket.example/{signed.id}?600"


@pytest.mark.slow
@pytest.mark.requirement("R2-5.6b")
async def test_object_store_creates_presigned_links(bucket: str) -> None:
    from transports.artifacts import open_store

    store = open_store(bucket)
    ref = await put_artifact(store)
    async with running(MemoryStore()) as web:
        url, _ = await make_link(store, ref.id, "10m", None)
        answer = await web.get(url, token=False)
        assert (answer.status, answer.body) == (200, b"0123456789")
        assert "attachment" in answer.headers["content-disposition"]
        assert (await web.get(url.replace(ref.sha256, "0" * 64), token=False)).status in (403, 404)


def test_signing_key_is_created_once_and_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(signing_key())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8 and len(set(keys)) == 1 and len(keys[0]) >= 32
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    with pytest.raises(StoreError, match="other users can read"):
        signing_key()
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    with pytest.raises(StoreError, match=r"cannot create or read a key \(Not a directory: .*serve\.key"):
        signing_key()


def test_running_servers_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert find_server("file:///a") is None
    with registered("http://127.0.0.1:1/", "file:///a"), registered("http://127.0.0.1:2/", "file:///b"):
        assert find_server("file:///a") == "http://127.0.0.1:1/"
        (left,) = [path for path in tmp_path.rglob("*.json") if "127.0.0.1:2" in path.read_text()]
        left.write_text(left.read_text().replace(str(os.getpid()), "999999999"))
        assert find_server("file:///b") is None and not left.exists()  # its process is gone
    assert find_server("file:///a") is None


async def test_body_with_too_many_values_is_rejected_before_parsing(web: Web) -> None:
    headers = {"Content-Type": "application/json"}

    def body(count: int) -> bytes:
        return b'{"x":[' + b"1," * count + b"1]}"

    fits, beyond = body(49_997), body(49_998)  # an object, a name and a list besides
    assert (await web.post("/tokens", data=io.BytesIO(fits), headers=headers)).status != 413
    for data in (beyond, b'{"x":[' + b"[]," * (5 << 20) + b"1]}"):
        with longest_turn() as turn:
            answer = await web.post("/tokens", data=io.BytesIO(data), headers=headers)
            assert answer.status == 413 and "more than 50,000 values and names" in answer.body.decode()
        assert turn.seconds < BOUND


# --- behind a reverse proxy ------------------------------------------------------------------------------------------


async def test_links_use_public_address_and_accept_only_its_host(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ABP_SERVE_KEY", "k" * 32)
    ref, public = await put_artifact(store), "https://files.example/abp"
    async with running(store, {}, public_url=f"{public}/") as web:
        link = web.served.link(ref)
        assert web.served.page == f"{public}/#token={web.token}"
        assert link.startswith(f"{public}/artifacts/{ref.id}?link=")
        for host in ("files.example", web.netloc):
            made = await web.post(f"/artifacts/{ref.id}/link", headers={"Host": host})
            assert made.json["url"].startswith(f"{public}/artifacts/{ref.id}?link=")
        assert (await make_link(store, ref.id, "1h", None))[0].startswith(f"{public}/artifacts/")
        assert (await web.get(link.removeprefix(public), token=False)).body == b"0123456789"
        # a proxy takes its part of the path away, and passes the name on or puts another in its place
        for host, origin, forwarded, status in (
            ("files.example", None, None, 200),
            ("files.example", "https://files.example", None, 200),
            (web.netloc, "https://files.example", None, 200),
            ("other.example", None, None, 421),
            ("other.example", None, "files.example", 421),
            ("files.example", "https://other.example", None, 403),
        ):
            headers = {"Host": host}
            headers |= {"Origin": origin} if origin else {}
            headers |= {"X-Forwarded-Host": forwarded} if forwarded else {}
            assert (await web.get("/healthz", headers=headers)).status == status, (host, origin)
        for host, secure in (("files.example", True), (web.netloc, False)):
            answer = await web.post("/login", {"token": web.token}, headers={"Host": host})
            assert ("Secure" in answer.headers["set-cookie"]) is secure


# --- hostile headers -------------------------------------------------------------------------------------------------


async def test_unreadable_headers_are_client_errors(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    invalid = "\udcff"  # a byte that is not UTF-8, as the helper sends it
    # a parameter in pieces of which one has no number (RFC 2231): Python's own parser raises TypeError
    pieces = "; filename*; filename*1=b"
    ref = await put_artifact(web.store)
    port = web.netloc.rpartition(":")[2]
    signed_out = [
        f"GET /artifacts HTTP/1.1\nHost: HOST\nCookie: abp_serve_{port}={invalid}",
        f"GET /artifacts HTTP/1.1\nHost: HOST\nCookie: abp_serve_{port}=a.{invalid}",
        f"GET /artifacts HTTP/1.1\nHost: HOST\nAuthorization: Bearer {invalid}",
        f"GET /artifacts HTTP/1.1\nHost: HOST\nAuthorization: Bearer abps.{invalid}",
        f"GET /artifacts/{ref.id}?link={invalid} HTTP/1.1\nHost: HOST",
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
        for parameters in (pieces, f"; name={invalid}", "; filename*=x'y", f"; charset*={invalid}''{invalid}")
    ]
    for head in signed_in:
        answer = await web.raw(head, b"{}")
        assert answer.status < 500, (head, answer)
    for parameters in (pieces, "; name*1*=a'b", "; name*\u00b2=a", f"; name={invalid}", "; filename*1*=''%ff"):
        lines = (f"Content-Disposition: form-data{parameters}", f"Content-Type: text/plain{pieces}", "", "a", "--x--")
        form = "\r\n".join(("--x", *lines))
        body = form.encode("utf-8", "surrogateescape")
        head = "POST /artifacts HTTP/1.1\nHost: HOST\nContent-Type: multipart/form-data; boundary=x"
        answer = await web.raw(f"{head}\nContent-Length: {len(body)}", body)
        assert answer.status in (400, 415, 422), (parameters, answer)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.mark.parametrize("jump", [86400.0, -86400.0, 40 * 365 * 86400.0, -40 * 365 * 86400.0])
async def test_clock_jump_does_not_expire_links_early_or_keep_them_forever(jump: float) -> None:
    start = 2_000_000_000.0
    now = [start]
    signer = Signer("k" * 32, clock=lambda: now[0])

    def opens(path: str) -> bool:
        try:
            return signer.is_link_to(path.partition("link=")[2], "a")
        except Expired:
            return False

    longest = signer.link_path("a", now[0] + MAX_SECONDS)
    now[0] = start + jump
    assert opens(longest) == (abs(jump) == 86400.0)
    made = signer.link_path("a", now[0] + MAX_SECONDS)
    assert opens(made)
    now[0] = start
    assert opens(longest) and opens(made) == (abs(jump) == 86400.0)
    now[0] += 62 * 86400
    assert not opens(longest) and not opens(made)
