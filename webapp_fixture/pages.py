"""The pages and the manifest."""

import html
from pathlib import Path

from aiohttp import web

from webapp_fixture.definitions import manifest, page_data
from webapp_fixture.records import SESSION_COOKIE, STATE, State

STATIC = Path(__file__).parent / "static"
STRICT_POLICY = "default-src 'none'; script-src 'self'"
routes = web.RouteTableDef()


def _render(state: State) -> str:
    page = (STATIC / "index.html").read_text("utf-8")
    values = {
        "TOKEN": html.escape(state.token),
        "OTHER_ORIGIN": html.escape(state.other_origin),
        "DEFINITIONS": page_data(),
    }
    for name, value in values.items():
        page = page.replace("{{" + name + "}}", value)
    return page


@routes.get("/")
async def index(request: web.Request) -> web.Response:
    """The app. With ``?isolated`` it is cross-origin isolated, so that it has ``SharedArrayBuffer``."""
    return _page(request)


def _page(request: web.Request) -> web.Response:
    state = request.app[STATE]
    response = web.Response(text=_render(state), content_type="text/html")
    response.set_cookie(SESSION_COOKIE, state.session, httponly=True, samesite="Lax", path="/")
    if "isolated" in request.query:
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Embedder-Policy"] = "require-corp"
    return response


@routes.get("/strict")
async def strict(request: web.Request) -> web.Response:
    """The same app under a policy that allows its own scripts and nothing else."""
    response = _page(request)
    response.headers["Content-Security-Policy"] = STRICT_POLICY
    return response


@routes.get("/abp-manifest.json")
async def abp_manifest(_request: web.Request) -> web.Response:
    """The ABP manifest."""
    return web.json_response(manifest(), headers={"Cache-Control": "max-age=60"})


@routes.get("/favicon.ico")
async def favicon(_request: web.Request) -> web.FileResponse:
    """The icon, for browsers that ask for it by its old name."""
    return web.FileResponse(STATIC / "icon.svg")
