"""Authentication over HTTP by bearer tokens, and the answer to a call whose token has too few scopes.

Tokens are secrets of the operator (:func:`parse_tokens`) or JSON Web Tokens of an issuer (:class:`JwtVerifier`). The
scopes that a call needs are in :mod:`._tool_list`: without HTTP nothing of this module is needed."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope as HttpScope, Send

from ..._internal.files import read_regular
from ...artifacts._ref import Scope
from ...errors import ProtocolError, UsageError, first_line
from ...protocol._plain_text import is_loopback, is_page, origin_of, plain_line
from ...protocol._strict_json import decode_json
from ._messages import receive_again
from ._options import Options

logger = logging.getLogger("transports")

#: Seconds for an issuer's keys to be fetched, between two fetches, and after which fetched keys expire.
_FETCH_TIMEOUT = 10.0
_FETCH_INTERVAL = 5.0
_KEYS_LIFETIME = 300.0
#: Most bytes of an issuer's key set, and of a file with one key.
_MAX_KEY_SET = 1 << 20


def parse_tokens(tokens: str) -> dict[str, str]:
    """Return the users by their secrets in ``TOKEN`` or ``USER=TOKEN``, separated by commas. A secret without a user
    belongs to ``local``.

    Raises :class:`~transports.errors.UsageError` for a secret under 16 ASCII characters, and for a repeated secret."""
    users: dict[str, str] = {}
    for part in tokens.split(","):
        name, equals, secret = part.strip().partition("=")
        if not equals:
            name, secret = "local", name
        if len(secret) < 16 or not secret.isascii() or not name or secret in users:
            raise UsageError(
                "a token must have at least 16 ASCII characters and belong to one user: TOKEN or USER=TOKEN, "
                'with commas between them; python -c "import secrets; print(secrets.token_urlsafe())" makes one'
            )
        users[secret] = name
    return users


class JwtVerifier:
    """Verifier of JSON Web Tokens (RFC 7519) of one issuer for one audience. The user is ``signed:`` plus the ``sub``,
    so that an issuer's names never equal those of the operator's secrets.

    The algorithms are a fixed list, all with public keys, so that a token cannot choose another (RFC 8725).
    """

    def __init__(self, options: Options, resource: str) -> None:
        """Read the key. ``resource`` is the address of this bridge, the expected audience unless the options set
        another (RFC 8707). Raises :class:`~transports.errors.UsageError` for a key that cannot be used."""
        self._options = options
        self._audience = options.jwt_audience or resource
        self._key_set = _KeySet(options.jwt_jwks_url) if options.jwt_jwks_url else None
        self._key = _public_key(options.jwt_key_file) if options.jwt_key_file else None

    async def verify(self, token: str) -> AccessToken | None:
        """Return the user of a token, or ``None`` for an invalid token; the reason is logged."""
        max_token_chars = 16 * 1024
        has_three_parts = token.count(".") == 2
        if not has_three_parts or len(token) > max_token_chars:
            return None
        try:
            return await self._verify_token(token)
        except Exception as error:  # noqa: BLE001 - the libraries parse untrusted input and may raise anything
            logger.warning("refused a signed token: %s", plain_line(first_line(error), 300))
            return None

    async def _verify_token(self, token: str) -> AccessToken:
        """Return the user of a token. Raises any exception for an invalid token."""
        key = self._key
        if self._key_set is not None:
            key = await self._key_set.key(jwt.get_unverified_header(token).get("kid"))
        claims = self._verified_claims(token, key)

        subject = f"signed:{claims['sub']}"
        for user in (claims["sub"], subject):
            # It raises for a name that cannot be a scope of artifacts, such as a long one.
            Scope(user=user)

        return AccessToken(
            token=token,
            client_id=subject,
            scopes=_scopes_in(claims),
            subject=subject,
            expires_at=int(claims["exp"]),
            claims=claims,
        )

    def _verified_claims(self, token: str, key: Any) -> dict[str, Any]:
        """Return the claims of a token after checking its signature, times, issuer and audience."""
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(self._options.jwt_algorithms),
            audience=self._audience,
            issuer=self._options.jwt_issuer,
            # Seconds by which the clocks of the issuer and this machine may differ.
            leeway=30,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims


def _scopes_in(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token, from ``scope`` (RFC 9068) or ``scp``, which some issuers write; each may be a text
    or a list of texts. Raises :class:`jwt.InvalidTokenError` for any other type, since its meaning is unknown."""
    scopes = claims.get("scope", claims.get("scp", ""))
    if isinstance(scopes, str):
        scopes = scopes.split()
    if not isinstance(scopes, list) or not all(isinstance(scope, str) and scope.isprintable() for scope in scopes):
        raise jwt.InvalidTokenError("its scopes are neither a text nor a list of texts")
    return scopes


class BearerVerifier(TokenVerifier):
    """Verifier of the secrets of ``users`` (secret to user), and of signed tokens if there is a verifier for them. The
    operator's secrets have all ``scopes``."""

    def __init__(self, users: Mapping[str, str], jwt_verifier: JwtVerifier | None, scopes: Sequence[str] = ()) -> None:
        self._users = users
        self._scopes = list(scopes)
        self._jwt_verifier = jwt_verifier

    async def verify_token(self, token: str) -> AccessToken | None:
        matching_user = None
        # No early exit: the time must not reveal a match.
        for secret, user in self._users.items():
            if hmac.compare_digest(secret.encode(), token.encode("utf-8", "surrogatepass")):
                matching_user = user
        if matching_user is not None:
            return AccessToken(token=token, client_id=matching_user, scopes=self._scopes, subject=matching_user)

        if self._jwt_verifier is None:
            return None
        return await self._jwt_verifier.verify(token)


class _KeySet:
    """Cache of an issuer's public keys (RFC 7517), refreshed every five minutes and when a token names an unknown key.

    Anyone can send tokens, so there is one fetch at a time, at most every five seconds, also after a failure. A known
    key never waits for a fetch. :class:`jwt.PyJWKClient` has a cache and a cooldown too, but its cooldown only begins
    with a success. It also holds a lock during a fetch, which blocks a thread for each token, and it limits neither the
    size of the answer nor the total time.
    """

    def __init__(self, url: str) -> None:
        """Check ``url``. Raises :class:`~transports.errors.UsageError` if the keys could be altered in transit."""
        origin = urlsplit(origin_of(url) or "")
        if not is_page(url) or not (origin.scheme == "https" or is_loopback(origin.hostname)):
            raise UsageError("jwt_jwks_url: give an https:// address, or an http:// one of this machine")

        self._url = url
        self._by_id: dict[str, jwt.PyJWK] = {}
        self._expires_at = self._next_fetch = float("-inf")
        self._fetch_lock = asyncio.Lock()

    async def key(self, kid: object) -> jwt.PyJWK:
        """Return the key with this id. Raises :class:`jwt.PyJWTError` if the id is unknown or fetching fails."""
        if not self._has_key(kid):
            async with self._fetch_lock:
                # Another token may have fetched the key meanwhile.
                if not self._has_key(kid) and time.monotonic() >= self._next_fetch:
                    await self._fetch_keys()
        if not self._has_key(kid):
            raise jwt.PyJWKClientError("its key is not one of the issuer's")
        return self._by_id[str(kid)]

    def _has_key(self, kid: object) -> bool:
        return kid in self._by_id and time.monotonic() < self._expires_at

    async def _fetch_keys(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT):
                body = await self._download_key_set()
            self._by_id = await asyncio.to_thread(_usable_keys, body)
            self._expires_at = time.monotonic() + _KEYS_LIFETIME
        finally:
            self._next_fetch = time.monotonic() + _FETCH_INTERVAL

    async def _download_key_set(self) -> bytes:
        """Return the issuer's answer. Raises :class:`jwt.PyJWTError` if it is refused or too large."""
        from aiohttp import ClientSession  # late: a bridge without signed tokens must not load it

        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        # Without redirects, which could lead to an address where the keys can be altered in transit.
        async with (
            ClientSession(auto_decompress=False, trust_env=True) as http,
            http.get(self._url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise jwt.PyJWKClientConnectionError(f"the issuer's keys: the server answered {response.status}")

            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _MAX_KEY_SET:
                    raise jwt.PyJWKClientError(f"the issuer's keys have more than {_MAX_KEY_SET:,} bytes")
            return bytes(body)


def _usable_keys(body: bytes) -> dict[str, jwt.PyJWK]:
    """Return the signature keys of a key set by id; other keys are left out, as RFC 7517 5 asks. Raises
    :class:`jwt.PyJWTError` if ``body`` is not a key set."""
    try:
        key_set = decode_json(body)
    except ProtocolError as error:
        raise jwt.PyJWKSetError("the issuer's keys are not JSON") from error
    keys = key_set.get("keys") if isinstance(key_set, dict) else None
    if not isinstance(keys, list):
        raise jwt.PyJWKSetError("the issuer's keys are not a JSON Web Key Set")

    usable: dict[str, jwt.PyJWK] = {}
    for key in keys[:100]:
        match key:
            case {"kid": str() as kid} if kid and key.get("use") in ("sig", None):
                # The libraries may raise anything for an invalid key.
                with suppress(Exception):
                    usable[kid] = jwt.PyJWK.from_dict(key)
    return usable


def _public_key(file: Path) -> Any:
    try:
        return load_pem_public_key(read_regular(file, _MAX_KEY_SET))
    except (OSError, ValueError) as error:
        raise UsageError(f"jwt_key_file: {file} is not a public key in PEM: {error}") from error


class ScopeChallenge:
    """ASGI middleware that answers a call with too few scopes with 403 and a header with the needed scopes (RFC 6750
    3.1), so that a client can ask its user for them. It must run after :class:`~._messages.MessageCheck`, which hands
    on a body as a whole.

    ``check`` takes a tool, its arguments and the session id (empty without one), and raises
    :class:`~transports.errors.UsageError` if the token lacks scopes. ``metadata_url`` is the address of the resource's
    metadata (RFC 9728)."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        check: Callable[[str, Mapping[str, Any], str], None],
        metadata_url: str,
    ) -> None:
        self._app = app
        self._check = check
        self._metadata_url = metadata_url

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        is_authenticated = getattr(scope.get("user"), "is_authenticated", False)
        if scope["type"] != "http" or scope["method"] != "POST" or not is_authenticated:
            await self._app(scope, receive, send)
            return

        message = await receive()
        error = self._scope_error(scope, message.get("body", b""))
        if error is not None:
            await self._challenge_response(error)(scope, receive, send)
        else:
            await self._app(scope, receive_again(message, receive), send)

    def _scope_error(self, scope: HttpScope, body: bytes) -> UsageError | None:
        """Return the error of a call with too few scopes."""
        max_body_bytes = 256 * 1024
        if len(body) > max_body_bytes:
            # The bridge itself refuses such a call; only the header with the needed scopes is missing.
            return None
        try:
            call = decode_json(body)
            if isinstance(call, dict) and call.get("method") == "tools/call":
                params = call["params"]
                arguments = params.get("arguments")
                if not isinstance(arguments, dict):
                    arguments = {}
                connection = Headers(scope=scope).get("mcp-session-id", "")
                self._check(str(params["name"]), arguments, connection)
        except UsageError as error:
            return error
        except (ProtocolError, KeyError, TypeError, AttributeError):
            pass  # the server reports the invalid request
        return None

    def _challenge_response(self, error: UsageError) -> JSONResponse:
        scopes = error.details["scopes"]
        assert isinstance(scopes, list)
        parts = [
            'error="insufficient_scope"',
            f'scope="{" ".join(scopes)}"',
            f'resource_metadata="{self._metadata_url}"',
            'error_description="this call needs more scopes"',
        ]
        body = {"error": "insufficient_scope", "error_description": error.message}
        return JSONResponse(body, 403, headers={"WWW-Authenticate": f"Bearer {', '.join(parts)}"})
