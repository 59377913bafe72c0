"""The bridge as an OAuth 2.1 resource server: the flow of the official client with a real authorization server, scopes
of apps and tools, and tokens that are refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx2 as httpx
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.support.authorization_server import authorization_server
from tests.support.mcp_clients import ERAS, URL, Apps, called
from tests.support.mcp_http import ANN, client_of, served as bridge_at
from tests.support.slow import slow_but
from transports.session._app_tables import AppEntry

pytestmark = pytest.mark.load

SCOPES = ["abp", "crm", "draw"]
NAMED = {"crm": AppEntry(url=URL, scopes=("crm",)), "private": AppEntry(url=URL, users=("ann",))}


def served(
    folder: Path, issuer: str, app: Apps | None = None, /, **options: Any
) -> contextlib.AbstractAsyncContextManager[str]:
    """The address of a bridge that takes the tokens of ``issuer`` and Ann's."""
    signed = {"jwt_issuer": issuer, "jwt_jwks_url": f"{issuer}/jwks", "required_scopes": ["abp"]}
    return bridge_at(folder, app, named=NAMED, **signed, tool_scopes={"abp_text_*": ["draw"]}, **options)


class Storage:
    """Keeps what a client was given."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Follows the redirect to the authorization server, as a browser does, and gives its code back."""

    def __init__(self) -> None:
        self._at = ""

    async def open(self, url: str) -> None:
        async with aiohttp.ClientSession() as http, http.get(url, allow_redirects=False) as response:
            self._at = response.headers["Location"]

    async def answer(self) -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(self._at).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query.get("iss", [None])[0])


@asynccontextmanager
async def signing_in(url: str, era: str) -> AsyncIterator[Client]:
    person = Person()
    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[AnyUrl("http://127.0.0.1:1/back")])
    auth = OAuthClientProvider(url, metadata, Storage(), person.open, person.answer)
    async with (
        httpx.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_official_client_signs_in_and_is_asked_for_scopes(tmp_path: Path, era: str) -> None:
    async with (
        authorization_server(SCOPES) as provider,
        served(tmp_path, provider.issuer) as url,
        signing_in(url, era) as client,
    ):
        status = await called(client, "abp_status")
        assert status["sessions"] == [] and status["apps"] == ["crm"]  # `private` is for Ann
        assert provider.granted[-1][1] == url and "abp" in provider.granted[-1][0]  # RFC 8707
        await called(client, "abp_connect", name="crm")
        assert (await called(client, "abp_text_shout", text="hi"))["data"] == {"text": "HI"}
        assert {*provider.granted[-1][0]} >= {"crm", "draw"}


async def asked(url: str, bearer: str | None, body: dict[str, Any] | None = None, **more: str) -> tuple[int, str]:
    """The status and the challenge of a request."""
    plain = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Accept": "application/json, text/event-stream", **more}
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer}"
    async with aiohttp.ClientSession() as http, http.post(url, json=body or plain, headers=headers) as response:
        return response.status, response.headers.get("WWW-Authenticate", "")


def tool_call(tool: str, **arguments: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def test_tokens_for_others_are_rejected_with_metadata_url(tmp_path: Path) -> None:
    async with authorization_server(SCOPES) as provider, served(tmp_path, provider.issuer) as url:
        where = f'resource_metadata="{url.removesuffix("/mcp")}/.well-known/oauth-protected-resource/mcp"'
        good: dict[str, Any] = {"aud": url, "scope": "abp"}
        for bearer in (
            None,
            provider.token(**good | {"aud": "https://other.test/mcp"}),
            provider.token(**good | {"aud": url.removesuffix("/mcp")}),
        ):
            status, challenge = await asked(url, bearer)
            assert status == 401 and 'error="invalid_token"' in challenge and where in challenge, challenge
        for scope in ("", "crm draw", "abpx"):
            status, challenge = await asked(url, provider.token(**good | {"scope": scope}))
            assert status == 403 and 'error="insufficient_scope"' in challenge and where in challenge, challenge
        for scopes in ({"scope": "abp"}, {"scope": None, "scp": ["abp"]}, {"scope": None, "scp": "x abp"}):
            assert (await asked(url, provider.token(**good | scopes)))[0] not in (401, 403)

        async with aiohttp.ClientSession() as http:
            for scope, expected in (("crm", 403), ("abp", 200)):
                headers = {"Authorization": f"Bearer {provider.token(**good | {'scope': scope})}"}
                async with http.get(url.replace("/mcp", "/metrics"), headers=headers) as response:
                    assert response.status == expected
            async with http.get(where.split('"')[1]) as response:
                described = await response.json()
        assert described["resource"] == url and described["authorization_servers"] == [provider.issuer]
        assert described["scopes_supported"] == SCOPES and described["bearer_methods_supported"] == ["header"]


async def test_scopes_of_app_and_tool_are_required_on_every_call_path(tmp_path: Path) -> None:
    async with authorization_server(SCOPES) as provider, served(tmp_path, provider.issuer) as url:
        few, crm, all_of_them = (provider.token(aud=url, scope=scope) for scope in ("abp", "abp crm", "abp crm draw"))
        status, challenge = await asked(url, few, tool_call("abp_connect", name="crm"))
        assert status == 403 and 'scope="crm"' in challenge and "resource_metadata=" in challenge
        async with client_of(url, all_of_them, "2026-07-28") as carol:
            await called(carol, "abp_connect", name="crm")
            for call, needed in (
                (tool_call("abp_job_hold"), '"crm"'),
                (tool_call("abp_text_shout", text="hi"), '"crm draw"'),
                (tool_call("abp_call", capability="text.shout"), '"crm draw"'),
                (tool_call("abp_open_view", capability="text.shout"), '"crm draw"'),
                (tool_call("abp_screenshot"), '"crm"'),
            ):
                status, challenge = await asked(url, few, call)
                assert status == 403 and f"scope={needed}" in challenge, challenge
            assert (await asked(url, few, tool_call("abp_status")))[0] not in (401, 403)
        large = tool_call("abp_text_shout", text="x" * 1_000_000)  # read by the bridge alone
        async with client_of(url, crm, "2026-07-28") as client:
            refused = await client.call_tool("abp_text_shout", large["params"]["arguments"])
            error = refused.structured_content["error"]
            assert error["code"] == "INSUFFICIENT_SCOPE" and error["details"]["scopes"] == ["crm", "draw"]
        async with client_of(url, ANN, "2026-07-28") as ann:  # the operator's own tokens have every scope
            assert (await called(ann, "abp_status"))["apps"] == ["crm", "private"]
            await called(ann, "abp_connect", name="crm")
            assert (await called(ann, "abp_text_shout", text="hi"))["data"] == {"text": "HI"}
            refused = await ann.call_tool("abp_connect", {"name": "crm", "transport": "websocket"})
            assert "transport: omit it" in refused.structured_content["error"]["message"]


async def test_scope_check_applies_to_session_of_its_request(tmp_path: Path) -> None:
    apps = Apps()
    async with (
        authorization_server(SCOPES) as provider,
        served(tmp_path, provider.issuer, apps, isolate_sessions=True, apps=["memory:a"]) as url,
        client_of(url, provider.token(aud=url, scope="abp"), "legacy") as few,
        client_of(url, provider.token(aud=url, scope="abp crm"), "legacy") as crm,
    ):
        assert len((await called(few, "abp_status"))["sessions"]) == 1
        await called(crm, "abp_connect", name="crm")
        assert len(apps.transports) == 3  # one for each session, and crm
        nobody = await asked(
            url, provider.token(aud=url, scope="abp"), tool_call("abp_status"), **{"mcp-session-id": "x"}
        )
        assert nobody[0] in (400, 404) and len(apps.transports) == 3


async def test_public_url_is_oauth_resource_behind_proxy(tmp_path: Path) -> None:
    public = "https://abp.example/team"
    async with (
        authorization_server(SCOPES) as provider,
        served(tmp_path, provider.issuer, public_url=f"{public}/") as url,
    ):
        good = provider.token(aud=f"{public}/mcp", scope="abp")
        for host, refused in (("abp.example", False), ("127.0.0.1", False), ("other.example", True)):
            status, _ = await asked(url, good, tool_call("abp_status"), Host=host)
            assert (status == 421) is refused and status not in (401, 403)
        status, challenge = await asked(url, provider.token(aud=url, scope="abp"), Host="abp.example")
        where = "https://abp.example/.well-known/oauth-protected-resource/team/mcp"
        assert status == 401 and f'resource_metadata="{where}"' in challenge
        local = url.removesuffix("/mcp") + urlsplit(where).path
        async with aiohttp.ClientSession() as http, http.get(local) as response:
            assert (await response.json())["resource"] == f"{public}/mcp"
