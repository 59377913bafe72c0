"""An OAuth 2.1 authorization server: the handlers of the MCP SDK, and access tokens that are signed (RFC 9068)."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


@cache
def own_key() -> rsa.RSAPrivateKey:
    """What every provider of this process signs with."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Grants carol what her client asks for, at once. ``granted`` are the scopes and the resource of each token."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.granted: list[tuple[list[str], str | None]] = []
        self._clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}

    def token(self, **claims: Any) -> str:
        """A signed access token; ``None`` leaves a claim out."""
        usual = {"iss": self.issuer, "sub": "carol", "exp": int(time.time()) + 300}
        present = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(present, own_key(), algorithm="RS256", headers={"kid": "one"})

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self._clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(24)
        assert client.client_id is not None
        self._codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject="carol",
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code = self._codes.pop(authorization_code.code)
        self.granted.append((code.scopes, code.resource))
        scope = " ".join(code.scopes)
        return OAuthToken(access_token=self.token(aud=code.resource, scope=scope), expires_in=300, scope=scope)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        raise NotImplementedError

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        return None


@asynccontextmanager
async def authorization_server(scopes: list[str]) -> AsyncIterator[Provider]:
    """A server that grants these scopes; its keys are at ``/jwks`` of the provider's ``issuer``."""
    listening = socket.create_server(("127.0.0.1", 0))
    provider = Provider(f"http://127.0.0.1:{listening.getsockname()[1]}")

    async def keys(_: Request) -> JSONResponse:
        return JSONResponse({"keys": [{**json.loads(RSAAlgorithm.to_jwk(own_key().public_key())), "kid": "one"}]})

    registering = ClientRegistrationOptions(enabled=True, valid_scopes=scopes, default_scopes=scopes[:1])
    # an AnyHttpUrl of its own would end in a slash
    issuer = AuthSettings.model_validate({"issuer_url": provider.issuer, "resource_server_url": None}).issuer_url
    routes = create_auth_routes(provider, issuer, client_registration_options=registering)
    app = Starlette(routes=[*routes, Route("/jwks", keys)])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield provider
    finally:
        server.should_exit = True
        await serving
