"""OAuth scopes: which ones a call needs, and the answer over HTTP that asks a client for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import UsageError
from ...session.app_tables import AppEntry
from ..shared.apps import App
from .capability_tools import CapabilityTool, capability_tools, tool_name
from .options import Options
from .user import User

__all__ = ["ScopeChallenge", "all_scopes", "app_is_in_scope", "require_app_scopes", "require_scopes", "scopes_for"]

#: Bytes of a request that is read before it is passed on. A larger call is checked all the same, by the bridge, whose
#: answer has no header that asks the client for more.
_MAX_READ = 256 * 1024
#: Tools that have an app do something.
_OF_AN_APP = ("abp_call", "abp_render_to_pdf", "abp_screenshot")


def all_scopes(options: Options, apps: Mapping[str, AppEntry]) -> list[str]:
    """Return every scope that the settings name, sorted."""
    named = [scope for scopes in options.tool_scopes.values() for scope in scopes]
    named += [scope for entry in apps.values() for scope in entry.scopes]
    return sorted({*options.required_scopes, *named})


def scopes_for(user: User, options: Options, tool: str, arguments: Mapping[str, Any]) -> set[str]:
    """Return the scopes that a call of a tool needs: those of the tool's name, those of the capability's where
    ``abp_call`` calls one, and those of the app."""
    capability, key = arguments.get("capability"), arguments.get("session")
    names, own = {tool}, _capability_tool(user, tool)
    if own is not None:
        capability, key = own.capability, arguments.get(own.session)
        names |= {*own.names}
    elif tool == "abp_call" and isinstance(capability, str):
        names.add(tool_name(capability))
    needed = {
        scope
        for pattern, scopes in options.tool_scopes.items()
        if any(fnmatchcase(name, pattern) for name in names)
        for scope in scopes
    }
    if tool == "abp_connect":
        entry = user.named.get(str(arguments.get("name")))
        return needed | set(entry.scopes if entry else ())
    if own is None and (tool not in _OF_AN_APP or "url" in arguments):
        return needed
    try:
        app = user.apps.select(key, capability if isinstance(capability, str) else None)
    except UsageError:  # the tool itself says what is wrong
        return needed
    return needed | _of_app(user, app)


def app_is_in_scope(user: User, app: App) -> bool:
    """Whether the token of this request has the scopes of an app."""
    return not _missing(_of_app(user, app))


def require_scopes(user: User, options: Options, tool: str, arguments: Mapping[str, Any]) -> None:
    """Raise :class:`~transports.errors.UsageError` (``INSUFFICIENT_SCOPE``) if the token of this request lacks a scope
    that the call needs. Without a token, over stdio, everything may be called."""
    _require(tool, scopes_for(user, options, tool, arguments))


def require_app_scopes(user: User, tool: str, app: App) -> None:
    """Raise what :func:`require_scopes` raises if the token of this request lacks a scope of ``app``, which may have
    been opened meanwhile."""
    _require(tool, _of_app(user, app))


def _require(tool: str, needed: set[str]) -> None:
    if missing := _missing(needed):
        raise UsageError(
            f"{tool} needs a token with the scope {' '.join(missing)}; sign in again and grant it",
            code="INSUFFICIENT_SCOPE",
            details={"scopes": sorted(needed)},
        )


def _of_app(user: User, app: App) -> set[str]:
    entry = user.named.get(app.target)
    return set(entry.scopes) if entry else set()


def _missing(needed: set[str]) -> list[str]:
    token = get_access_token()
    return [] if token is None else sorted(needed - set(token.scopes))


def _capability_tool(user: User, tool: str) -> CapabilityTool | None:
    return capability_tools(user.apps, files=True).get(tool)


class ScopeChallenge:
    """ASGI middleware that answers a call for which the token has too few scopes with 403 and a header that names
    those it needs (RFC 6750 3.1), so that a client can ask its user for them. It stands behind authentication.

    ``check`` raises :class:`~transports.errors.UsageError` for a tool and arguments that the token is not enough for;
    its third argument is the session's id, empty without one. ``metadata_url`` is where the resource describes itself
    (RFC 9728)."""

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        known = getattr(scope.get("user"), "is_authenticated", False)
        if scope["type"] != "http" or scope["method"] != "POST" or not known:
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []
        size, complete = 0, False
        while not complete and size <= _MAX_READ:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            complete = message["type"] != "http.request" or not message.get("more_body", False)
        if complete and (error := self._refusal(scope, b"".join(message.get("body", b"") for message in messages))):
            await self._challenge(error)(scope, receive, send)
            return

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)

    def _refusal(self, scope: Scope, body: bytes) -> UsageError | None:
        try:
            call = json.loads(body)
            if isinstance(call, dict) and call.get("method") == "tools/call":
                params = call["params"]
                arguments = params.get("arguments")
                connection = Headers(scope=scope).get("mcp-session-id", "")
                self._check(str(params["name"]), arguments if isinstance(arguments, dict) else {}, connection)
        except UsageError as error:
            return error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # the server says what is wrong with the request
        return None

    def _challenge(self, error: UsageError) -> JSONResponse:
        scopes = error.details["scopes"]
        wanted = " ".join(str(scope) for scope in scopes) if isinstance(scopes, list) else ""
        parts = [
            'error="insufficient_scope"',
            f'scope="{wanted}"',
            f'resource_metadata="{self._metadata_url}"',
            'error_description="this call needs more scopes"',
        ]
        body = {"error": "insufficient_scope", "error_description": error.message}
        return JSONResponse(body, 403, headers={"WWW-Authenticate": f"Bearer {', '.join(parts)}"})
