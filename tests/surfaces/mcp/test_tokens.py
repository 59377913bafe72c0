"""Signed tokens over HTTP, with real key pairs, a real server of keys, and forged tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.mcp_clients import URL, called
from tests.surfaces.mcp.test_http import ANN, client_of, served
from transports.artifacts import open_store
from transports.errors import UsageError
from transports.surfaces.mcp import Bridge, Options, serve_http

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


@asynccontextmanager
async def keys(fetched: list[float] | None = None, *, fails: bool = False) -> AsyncIterator[str]:
    """The URL of a set of keys. ``fetched`` gets the time of each request; with ``fails`` each is answered with 503."""
    listed = [
        {**json.loads(kind.to_jwk(key_of(name).public_key())), "kid": name, "alg": name} for name, kind in KINDS.items()
    ]
    app = web.Application()

    async def give(_: web.Request) -> web.Response:
        if fetched is not None:
            fetched.append(time.monotonic())
        return web.json_response({"keys": listed}, status=503 if fails else 200)

    app.router.add_get("/jwks", give)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    finally:
        await runner.cleanup()


async def status(url: str, bearer: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Authorization": f"Bearer {bearer}", "Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        return response.status


@pytest.mark.requirement("R2-7.2d", "R4-7f")
@pytest.mark.parametrize("algorithm", list(KINDS))
async def test_the_subject_is_the_user(tmp_path: Path, algorithm: str) -> None:
    key = key_of(algorithm)
    async with keys() as jwks:
        claims: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": jwks}
        async with (
            served(tmp_path, **claims) as url,
            client_of(url, token(key, algorithm), "2026-07-28") as carol,
            client_of(url, token(key, algorithm, sub="dave"), "2026-07-28") as dave,
            client_of(url, ANN, "2026-07-28") as ann,
            client_of(url, token(key, algorithm, sub="ann"), "2026-07-28") as namesake,
        ):
            await called(carol, "abp_connect", url=URL)
            uri = (await called(carol, "abp_text_shout", text="hi"))["artifacts"][0]["uri"]
            for other in (dave, ann):
                assert (await called(other, "abp_status"))["sessions"] == []
                assert (await other.call_tool("abp_read_artifact", {"id": uri})).is_error
            made = await called(ann, "abp_connect", url=URL)
            assert (await called(namesake, "abp_status"))["sessions"] == []  # the issuer's Ann is not the operator's
            assert (await namesake.call_tool("abp_disconnect", {"session": made["session"]})).is_error
            async with client_of(url, token(key, algorithm), "legacy") as again:
                assert len((await called(again, "abp_status"))["sessions"]) == 1


def forged(header: dict[str, str], secret: bytes) -> str:
    """A token signed with a public key as if it were a secret."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + 300}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    mac = hmac.new(secret, b".".join(parts), hashlib.sha256).digest() if secret else b""
    return b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


@pytest.mark.requirement("R4-9a", "R4-14k", "R4-15a")
@pytest.mark.parametrize("way", ["file", "server"])
async def test_invalid_tokens_are_refused(tmp_path: Path, way: str) -> None:
    (tmp_path / "key.pem").write_bytes(pem(key_of("RS256")))
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
        "of somebody with a name that is too long": token(sub="x" * 300),
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
    async with keys() as jwks:
        key: dict[str, Any] = {"jwt_key_file": tmp_path / "key.pem"} if way == "file" else {"jwt_jwks_url": jwks}
        async with served(tmp_path / "out", jwt_issuer=ISSUER, jwt_audience=AUDIENCE, **key) as url:
            assert await status(url, good) != 401
            assert {name: await status(url, one) for name, one in bad.items()} == dict.fromkeys(bad, 401)
            assert await status(url, ANN) != 401


async def test_keys_that_cannot_be_used_are_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"no key")
    usual: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    for more in ({"jwt_jwks_url": "http://issuer.test/jwks"}, {"jwt_key_file": tmp_path / "key.pem"}):
        bridge = Bridge(Options(**usual, **more), open_store(tmp_path / "out"))
        with pytest.raises(UsageError, match="jwt_"):
            await serve_http(bridge, "127.0.0.1", 0, {}, print)


async def test_signed_tokens_are_refused_while_the_keys_cannot_be_fetched(tmp_path: Path) -> None:
    async with keys() as jwks:
        pass  # and gone
    claims: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": jwks}
    async with served(tmp_path, **claims) as url:
        assert await status(url, token()) == 401
        assert await status(url, ANN) != 401


async def test_forged_tokens_do_not_make_the_bridge_fetch_keys_again_and_again(tmp_path: Path) -> None:
    fetched: list[float] = []
    async with keys(fetched) as jwks:
        claims: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": jwks}
        async with served(tmp_path, **claims) as url:
            started, another = time.monotonic(), key_of("RS256", "another's")
            for number in range(20):
                assert await status(url, token(another, kid=f"k{number}")) == 401
                assert await status(url, token()) != 401
            assert len(fetched) <= 1 + (time.monotonic() - started) / 5


async def test_a_failed_fetch_of_keys_is_not_repeated_at_once(tmp_path: Path) -> None:
    fetched: list[float] = []
    async with keys(fetched, fails=True) as jwks:
        claims: dict[str, Any] = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_url": jwks}
        async with served(tmp_path, **claims) as url:
            started = time.monotonic()
            assert set(await asyncio.gather(*(status(url, token()) for _ in range(20)))) == {401}
            assert await status(url, token()) == 401
            assert len(fetched) <= 1 + (time.monotonic() - started) / 5
