"""Who may come in over HTTP: those with a secret that the operator gave out, or a token that somebody signed."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from mcp.server.auth.provider import AccessToken, TokenVerifier

from ...artifacts import Scope
from ...errors import UsageError
from ...protocol.urls import is_loopback
from .options import Options

__all__ = ["Signed", "Verifier", "users_of"]

logger = logging.getLogger("transports")

_SHORTEST = 16
#: Seconds: for the keys of the issuer to come, to keep them, between two tries to get them, that clocks may differ.
_FETCH = 10
_KEPT = 300.0
_AGAIN = 5.0
_LEEWAY = 30.0
_LONGEST = 16 * 1024


def users_of(tokens: str) -> dict[str, str]:
    """Who each secret stands for: ``TOKEN`` or ``USER=TOKEN``, with commas between them. Raises
    :class:`~transports.errors.UsageError`."""
    users: dict[str, str] = {}
    for part in tokens.split(","):
        name, mark, secret = part.strip().partition("=")
        name, secret = (name, secret) if mark else ("local", name)
        if len(secret) < _SHORTEST or not secret.isascii() or not name or secret in users:
            raise UsageError(
                f"a token needs {_SHORTEST} ASCII characters or more and stands for one user: TOKEN or USER=TOKEN, "
                'with commas between them; python -c "import secrets; print(secrets.token_urlsafe())" makes one'
            )
        users[secret] = name
    return users


class Signed:
    """JSON Web Tokens (RFC 7519) of one issuer for one audience; the user is ``sub``. Only signatures with public keys
    are looked at: the algorithms are a fixed list, so that a token cannot choose another (RFC 8725)."""

    def __init__(self, options: Options) -> None:
        """Raises :class:`~transports.errors.UsageError` for a key that cannot be used."""
        self._options = options
        self._keys = _Keys(options.jwt_jwks_url) if options.jwt_jwks_url else None
        self._key = _local(options.jwt_key_file) if options.jwt_key_file else None

    async def verify(self, token: str) -> AccessToken | None:
        """What the token says, or ``None`` if it is not to be believed; why is logged."""
        if token.count(".") != 2 or len(token) > _LONGEST:
            return None
        try:
            key = self._key
            if self._keys is not None:
                key = await self._keys.named(jwt.get_unverified_header(token).get("kid"))
            claims = self._claims(token, key)
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            logger.warning("refused a signed token: %s", error)
            return None
        subject = claims["sub"]
        try:
            Scope(user=subject)
        except UsageError as error:  # too long, say, to be whose artifacts are
            logger.warning("refused a signed token: %s", error.message)
            return None
        return AccessToken(
            token=token, client_id=subject, scopes=[], subject=subject, expires_at=int(claims["exp"]), claims=claims
        )

    def _claims(self, token: str, key: Any) -> dict[str, Any]:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(self._options.jwt_algorithms),
            audience=self._options.jwt_audience,
            issuer=self._options.jwt_issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims


class Verifier(TokenVerifier):
    """Secrets of ``users``, and signed tokens if the operator has said whose."""

    def __init__(self, users: Mapping[str, str], signed: Signed | None) -> None:
        self._users = users
        self._signed = signed

    async def verify_token(self, token: str) -> AccessToken | None:
        found = None
        for secret, user in self._users.items():  # all of them: the time tells nothing
            if hmac.compare_digest(secret.encode(), token.encode()):
                found = user
        if found is not None:
            return AccessToken(token=token, client_id=found, scopes=[], subject=found)
        return await self._signed.verify(token) if self._signed else None


class _Keys:
    """The public keys of an issuer (RFC 7517). They are fetched every few minutes, and when a token names one that is
    not known, but not more often than every few seconds: anybody can send tokens."""

    def __init__(self, url: str) -> None:
        """Raises :class:`~transports.errors.UsageError` for an address on whose way anybody can change them."""
        parts = urlsplit(url)
        safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
        if not parts.hostname or not safe:
            raise UsageError("jwt_jwks_url: give an https:// address, or an http:// one of this machine")
        self._client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=_FETCH)
        self._found: dict[str, jwt.PyJWK] = {}
        self._until = self._not_before = float("-inf")
        self._fetching = asyncio.Lock()

    async def named(self, kid: object) -> jwt.PyJWK:
        """Raises :class:`jwt.PyJWTError` if there is no such key, or none can be had."""
        if not self._has(kid):
            async with self._fetching:
                if not self._has(kid) and time.monotonic() >= self._not_before:
                    await self._fetch()
        if not self._has(kid):
            raise jwt.PyJWKClientError("its key is not one of the issuer's")
        return self._found[str(kid)]

    def _has(self, kid: object) -> bool:
        return kid in self._found and time.monotonic() < self._until

    async def _fetch(self) -> None:
        try:
            keys = await asyncio.to_thread(self._client.get_signing_keys)
            self._found = {key.key_id: key for key in keys if key.key_id}
            self._until = time.monotonic() + _KEPT
        finally:
            self._not_before = time.monotonic() + _AGAIN


def _local(file: Path) -> Any:
    try:
        return load_pem_public_key(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"jwt_key_file: {file} is no public key in PEM: {error}") from error
