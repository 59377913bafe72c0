"""Signed tokens over HTTP, with real key pairs, a real server of keys, and forged tokens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.mcp_clients import URL, called, files_of
from tests.support.mcp_http import ANN, client_of, served
from tests.support.rows import each_row
from transports.artifacts import open_store
from transports.errors import UsageError
from transports.surfaces.mcp import _http as tokens
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._http import JwtVerifier, serve_http
from transports.surfaces.mcp._options import Options

ISSUER, AUDIENCE = "https://issuer.test/", "https://bridge.test/mcp"
KINDS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@cache
def key_of(algorithm: str, whose: str = "the issuer's") -> Any:
    """The same key each time; made when it is asked for, since every worker imports this module."""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data


def token(key: Any = None, algorithm: str = "RS256", *, kid: str | None = None, **claims: Any) -> str:
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": time.time() + 300}
    said = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return jwt.encode(said, key or key_of("RS256"), algorithm=algorithm, headers={"kid": kid or algorithm})


def trusting(jwks: str) -> dict[str, Any]:
    """The settings of a bridge that takes the tokens of the issuer with these keys."""
    return {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": jwks}


def trusting_file(folder: Path) -> dict[str, Any]:
    (folder / "key.pem").write_bytes(pem(key_of("RS256")))
    return {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_key_file": folder / "key.pem"}


def listed(name: str) -> dict[str, object]:
    """A public key of the issuer, as a set of keys lists it."""
    return {**json.loads(KINDS[name].to_jwk(key_of(name).public_key())), "kid": name, "alg": name}


def signed(claims: bytes, **header: object) -> str:
    """A token of the issuer with these bytes for claims, which need not be such as a library would write."""
    return jwt.api_jws.encode(claims, key_of("RS256"), algorithm="RS256", headers={"kid": "RS256", **header})


#: Values that no claim of ours may have, as JSON.
WILD = (
    "null", "true", "17", "-1", "NaN", "Infinity", "1e999", "9" * 400, "9" * 5000, "[]", "[null]", "[[]]", "{}",
    '{"a": 1}', '"\\ud800"', "[" * 900 + "]" * 900, "[" * 5000 + "]" * 5000,
)  # fmt: skip


def with_claim(name: str, value: str) -> bytes:
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + 300}
    usual.pop(name, None)
    return (json.dumps(usual)[:-1] + f', "{name}": {value}}}').encode()


@each_row("name", ["scope", "scp", "aud", "iss", "sub", "exp", "nbf", "iat", "jti"])
async def test_token_claim_of_wrong_type_is_rejected_without_crash(tmp_path: Path, name: str) -> None:
    verifier = JwtVerifier(Options(**trusting_file(tmp_path)), AUDIENCE)
    allowed = {
        "scope": ("[]",),  # a list of none
        "scp": ("[]",),
        "exp": ("9" * 400,),  # for ever, as the issuer says
        "nbf": ("true", "17", "-1"),  # long ago
        "iat": ("true", "17", "-1"),
        "jti": ('"\\ud800"',),  # a text, which is compared with nothing
    }
    for value in WILD:
        accepted = await verifier.verify(signed(with_claim(name, value))) is not None
        assert not accepted or value in allowed.get(name, ()), value


@each_row("said", ["scope", "scp"])
async def test_only_well_formed_token_scopes_are_accepted(tmp_path: Path, said: str) -> None:
    verifier = JwtVerifier(Options(**trusting_file(tmp_path)), AUDIENCE)
    for value, scopes in (('"a b"', ["a", "b"]), ('""', []), ('["a", "b"]', ["a", "b"]), ("[]", [])):
        found = await verifier.verify(signed(with_claim(said, value)))
        assert found is not None and found.scopes == scopes
    for value in ("null", "1", "true", '{"a": 1}', '["a", 1]', '["a", null]', '[["a"]]', '"\\udc00"'):
        assert await verifier.verify(signed(with_claim(said, value))) is None, value


async def test_tokens_with_malformed_headers_are_rejected() -> None:
    async with keys() as jwks:
        verifier = JwtVerifier(Options(**trusting(jwks)), AUDIENCE)
        body, usual = with_claim("x", "1"), '"typ": "JWT", "alg": "RS256"'
        assert await verifier.verify(signed(body))
        for head in (
            *(f'{{{usual}, "kid": {value}}}' for value in WILD),
            *(f'{{"typ": "JWT", "kid": "RS256", "alg": {value}}}' for value in WILD),
            *(f'{{{usual}, "kid": "RS256", "crit": {value}}}' for value in WILD),
            *(f'{{{usual}, "kid": "RS256", "b64": {value}}}' for value in WILD if value not in ("true",)),
            *WILD,
        ):
            parts = [base64.urlsafe_b64encode(one).rstrip(b"=") for one in (head.encode(), body, b"signature")]
            assert await verifier.verify(b".".join(parts).decode()) is None, head[:80]


WILD_KEY_SETS = (
    "", "null", "true", "17", "[]", "[1]", "{}", '{"keys": null}', '{"keys": 17}', '{"keys": {"a": 1}}',
    '{"keys": [null]}', '{"keys": [17, "a", [], {}]}', '{"keys": [{"kty": null}]}',
    '{"keys": [{"kty": "RSA", "n": 1, "e": []}]}', '{"keys": [{"kty": "RSA", "kid": [], "n": "AQAB", "e": "AQAB"}]}',
    '{"keys": [{"kty": "EC", "crv": 1, "x": 1, "y": {}}]}', '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": null}]}',
    '{"keys": [{"kty": ["RSA"], "alg": {}}]}', '{"keys": [{"kty": "oct", "k": 1}]}', "[" * 100_000,
    '{"keys": ' + "9" * 5000 + "}",
)  # fmt: skip


async def test_malformed_or_unreachable_key_set_rejects_tokens_without_crash(caplog: pytest.LogCaptureFixture) -> None:
    keys = ""
    async with answering(lambda _: web.Response(text=keys)) as jwks:
        for keys in WILD_KEY_SETS:
            assert await JwtVerifier(Options(**trusting(jwks)), AUDIENCE).verify(token()) is None, keys[:80]
    assert await JwtVerifier(Options(**trusting(jwks)), AUDIENCE).verify(token()) is None, "its server is gone"
    assert not [record for record in caplog.records if record.exc_info]


@each_row("more", [0, 1])
async def test_key_set_over_1_mb_is_rejected(more: int) -> None:
    text = json.dumps({"keys": [listed("RS256")]})
    async with answering(lambda _: web.Response(text=text + " " * ((1 << 20) + more - len(text)))) as jwks:
        accepted = await JwtVerifier(Options(**trusting(jwks)), AUDIENCE).verify(token())
        assert (accepted is None) is bool(more)


@pytest.mark.load
async def test_slowly_dripping_jwks_fetch_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_FETCH_TIMEOUT", 0.5)
    asked: list[asyncio.Event] = []

    async def drip(request: web.Request) -> web.StreamResponse:
        asked.append(over := asyncio.Event())
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(600):  # far above the deadline, in steps far below it
                await response.write(b" ")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.1)
                    break
        return response

    async with answering(drip) as jwks, served(tmp_path, **trusting(jwks)) as url:
        async with asyncio.timeout(20):
            assert await status(url, token()) == 401
        for over in asked:
            over.set()


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """The URL of a set of keys that is answered so."""
    app = web.Application()

    async def give(request: web.Request) -> web.StreamResponse:
        found = answer(request)
        return found if isinstance(found, web.StreamResponse) else await found

    app.router.add_get("/jwks", give)
    async with TestServer(app) as server:
        yield str(server.make_url("/jwks"))


@asynccontextmanager
async def keys(fetched: list[float] | None = None, *, fails: bool = False) -> AsyncIterator[str]:
    """The URL of a set of keys. ``fetched`` gets the time of each request; with ``fails`` each is answered with 503."""

    def give(_: web.Request) -> web.Response:
        if fetched is not None:
            fetched.append(time.monotonic())
        return web.json_response({"keys": [listed(name) for name in KINDS]}, status=503 if fails else 200)

    async with answering(give) as url:
        yield url


async def status(url: str, bearer: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Authorization": f"Bearer {bearer}", "Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        return response.status


async def test_token_of_each_algorithm_is_accepted() -> None:
    async with keys() as jwks:
        verifier = JwtVerifier(Options(**trusting(jwks)), AUDIENCE)
        for algorithm in KINDS:
            assert await verifier.verify(token(key_of(algorithm), algorithm)) is not None, algorithm


@pytest.mark.load
@pytest.mark.requirement("R2-7.2d", "R4-7f")
async def test_jwt_subject_becomes_user(tmp_path: Path) -> None:
    async with (
        keys() as jwks,
        served(tmp_path, **trusting(jwks)) as url,
        client_of(url, token(), "2026-07-28") as carol,
        client_of(url, token(sub="dave"), "2026-07-28") as dave,
        client_of(url, ANN, "2026-07-28") as ann,
        client_of(url, token(sub="ann"), "2026-07-28") as namesake,
    ):
        await called(carol, "abp_connect", url=URL)
        uri = files_of(await called(carol, "abp_text_shout", text="hi"))[0]["uri"]
        for other in (dave, ann):
            assert (await called(other, "abp_status"))["sessions"] == []
            assert (await other.call_tool("abp_read_artifact", {"id": uri})).is_error
        made = await called(ann, "abp_connect", url=URL)
        assert (await called(namesake, "abp_status"))["sessions"] == []  # the issuer's Ann is not the operator's
        assert (await namesake.call_tool("abp_disconnect", {"session": made["session"]})).is_error
        async with client_of(url, token(), "legacy") as again:
            assert len((await called(again, "abp_status"))["sessions"]) == 1


def forged(header: dict[str, str], secret: bytes) -> str:
    """A token signed with a public key as if it were a secret."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + 300}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    mac = hmac.new(secret, b".".join(parts), hashlib.sha256).digest() if secret else b""
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


@pytest.mark.requirement("R4-9a", "R4-14k", "R4-15a")
async def test_invalid_jwts_are_rejected(tmp_path: Path) -> None:
    now, another = time.time(), key_of("RS256", "another's")
    good = token()
    head, body, signature = good.split(".")
    changed = json.loads(base64.urlsafe_b64decode(body + "==")) | {"sub": "ann"}
    stolen = base64.urlsafe_b64encode(json.dumps(changed).encode()).rstrip(b"=").decode()
    bad = {
        "another key": token(another),
        "another issuer": token(iss="https://other.test/"),
        "another audience": token(aud="https://other.test/mcp"),
        "over": token(exp=now - 60),
        "not yet": token(nbf=now + 600),
        "for ever": token(exp=None),
        "of nobody": token(sub=None),
        "of nobody in particular": token(sub=""),
        "of a name that is too long": token(sub="x" * 300),
        "from nowhere": token(iss=None),
        "for all": token(aud=None),
        "unsigned": forged({"alg": "none", "typ": "JWT"}, b""),
        "a public key as a secret": forged({"alg": "HS256", "kid": "RS256"}, pem(key_of("RS256"))),
        "another algorithm": token(key_of("RS256"), "RS512", kid="RS256"),
        "another kind of key": token(key_of("ES256"), "ES256", kid="RS256"),
        "a key that nobody knows": token(another, kid="unknown"),
        "changed": f"{head}.{stolen}.{signature}",
        "no token": "a.b.c",
        "long": f"{head}.{body}.{'A' * 20_000}",
    }
    async with keys() as jwks, served(tmp_path / "out", **trusting(jwks)) as url:
        assert await status(url, good) != 401
        assert {name: await status(url, one) for name, one in bad.items()} == dict.fromkeys(bad, 401)
        assert await status(url, ANN) != 401


async def test_unusable_jwt_keys_fail_at_startup(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"no key")
    usual: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    for more in ({"jwt_jwks_url": "http://issuer.test/jwks"}, {"jwt_key_file": tmp_path / "key.pem"}):
        bridge = Bridge(Options(**usual, **more), open_store(tmp_path / "out"))
        with pytest.raises(UsageError, match="jwt_"):
            await serve_http(bridge, "127.0.0.1", 0, {}, print)


async def test_failed_key_fetch_is_not_retried_at_once(tmp_path: Path) -> None:
    fetched: list[float] = []
    async with keys(fetched, fails=True) as jwks, served(tmp_path, **trusting(jwks)) as url:
        started = time.monotonic()
        assert set(await asyncio.gather(*(status(url, token()) for _ in range(20)))) == {401}
        assert await status(url, token()) == 401
        assert await status(url, ANN) != 401
        assert len(fetched) <= 1 + (time.monotonic() - started) / 5


async def test_forged_tokens_do_not_trigger_repeated_key_fetches(tmp_path: Path) -> None:
    fetched: list[float] = []
    async with keys(fetched) as jwks, served(tmp_path, **trusting(jwks)) as url:
        started, another = time.monotonic(), key_of("RS256", "another's")
        for number in range(6):
            assert await status(url, token(another, kid=f"k{number}")) == 401
            assert await status(url, token()) != 401
        assert len(fetched) <= 1 + (time.monotonic() - started) / 5


async def test_unusable_jwk_does_not_affect_other_keys() -> None:
    good = listed("RS256")
    wild: list[object] = [
        17,
        None,
        [],
        {"kty": "RSA", "n": 1},
        {"kty": "RSA", "kid": [], "n": "AQAB"},
        {**good, "kid": {}},
    ]
    async with answering(lambda _: web.json_response({"keys": [*wild, good]})) as jwks:
        assert await JwtVerifier(Options(**trusting(jwks)), AUDIENCE).verify(token())
