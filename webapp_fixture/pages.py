"""Routes of the pages and the manifest."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from aiohttp import web

from webapp_fixture.definitions import manifest, page_data
from webapp_fixture.modules import joined
from webapp_fixture.state import SESSION_COOKIE, STATE, State

STATIC = Path(__file__).parent / "static"
STRICT_POLICY = "default-src 'none'; script-src 'self'"
WEBMCP_POLICY = "default-src 'none'; script-src 'self'; frame-src *; form-action 'self'"
EMBED = '  <script src="/static/abp-embed.js" data-origins="*"></script>\n'
WEBMCP = '  <script src="/static/abp-webmcp.js"></script>\n'
SHOUTING = '  <script src="/static/shouting.js"></script>\n'
FRAME_HEADERS = {
    "strict": ("Content-Security-Policy", STRICT_POLICY),
    "denied": ("X-Frame-Options", "DENY"),
    "ancestors": ("Content-Security-Policy", "frame-ancestors 'none'"),
}
#: What a person sees of the page.
INTERFACE = re.compile(r"^  <header.*^  </main>\n", re.DOTALL | re.MULTILINE)
routes = web.RouteTableDef()


def _manifest_link(query: Mapping[str, str]) -> str:
    """``?manifest=``: ``none`` has no link; the others lead to a manifest that is ``missing``, or has that fault. The
    manifest of a page that lists faults lists them, too."""
    if query.get("manifest") == "none":
        return ""
    address = "/abp-manifest.json"
    inherited = {name: query[name] for name in ("manifest", "faults", "given") if name in query}
    if inherited:
        address += f"?{urlencode(inherited)}"
    return f'  <link rel="abp-manifest" href="{html.escape(address)}">\n'


def _render(state: State, embed: str, manifest_link: str) -> str:
    page = (STATIC / "index.html").read_text("utf-8")
    if not state.interface:
        page = INTERFACE.sub("", page)
    values = {
        "MANIFEST": manifest_link,
        "EMBED": embed,
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


def _page(request: web.Request, embed: str = "") -> web.Response:
    state = request.app[STATE]
    response = web.Response(text=_render(state, embed, _manifest_link(request.query)), content_type="text/html")
    response.set_cookie(SESSION_COOKIE, state.session, httponly=True, samesite="Lax", path="/")
    if "isolated" in request.query:
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Cross-Origin-Embedder-Policy"] = "require-corp"
    return response


@routes.get("/app.js")
async def script(_request: web.Request) -> web.Response:
    """The page's modules in one script. Each is below ``/static/`` too."""
    return web.Response(text=joined(STATIC / "app.js"), content_type="text/javascript")


@routes.get("/strict")
async def strict(request: web.Request) -> web.Response:
    """The same app under a policy that allows its own scripts and nothing else."""
    response = _page(request)
    response.headers["Content-Security-Policy"] = STRICT_POLICY
    return response


@routes.get("/embed")
async def embed(request: web.Request) -> web.Response:
    """The same app for an iframe: any page may drive it over postMessage."""
    return _page(request, EMBED)


@routes.get("/embed/{variant:strict|denied|ancestors}")
async def embed_with_headers(request: web.Request) -> web.Response:
    """The same under a policy: of the strict page, or one by which nobody may frame it."""
    response = _page(request, EMBED)
    name, value = FRAME_HEADERS[request.match_info["variant"]]
    response.headers[name] = value
    return response


@routes.get("/embed/silent")
async def embed_silent(request: web.Request) -> web.Response:
    """The same without ``abp-embed.js``: it loads and never answers a message."""
    return _page(request)


@routes.get("/embed/shouting")
async def embed_shouting(request: web.Request) -> web.Response:
    """The same with a frame of the other origin in it, which answers every message first, and wrongly."""
    return _page(request, SHOUTING + EMBED)


@routes.get("/embed/shouter")
async def embed_shouter(_request: web.Request) -> web.FileResponse:
    """The frame of ``/embed/shouting``; ``fault.navigate`` with ``how: away`` leads here too."""
    return web.FileResponse(STATIC / "shouter.html")


@routes.get("/webmcp")
async def webmcp(request: web.Request) -> web.Response:
    """The same app, which also offers its capabilities as WebMCP tools."""
    return _page(request, WEBMCP)


@routes.get("/webmcp/cases")
async def webmcp_cases(request: web.Request) -> web.Response:
    """A page with WebMCP tools and forms, and two frames with tools, under a policy that forbids to fetch anything.
    With ``?dialect=`` it loads that script first (a polyfill)."""
    dialect = request.query.get("dialect")
    script = f'<script src="{html.escape(dialect)}"></script>\n  ' if dialect else ""
    page = (STATIC / "webmcp" / "cases.html").read_text("utf-8").replace("{{DIALECT}}", script)
    page = page.replace("{{OTHER_ORIGIN}}", html.escape(request.app[STATE].other_origin))
    return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": WEBMCP_POLICY})


@routes.get("/webmcp/{part:frame|results}")
async def webmcp_part(request: web.Request) -> web.FileResponse:
    """A frame of that page, and the page that its search leads to."""
    return web.FileResponse(STATIC / "webmcp" / f"{request.match_info['part']}.html")


@routes.get("/abp-manifest.json")
async def abp_manifest(request: web.Request) -> web.Response:
    """The ABP manifest; with ``?manifest=`` one that is ``missing``, no JSON (``broken``), for another version of the
    protocol (``version``), of another app (``app``), served as ``text``, or that promises too much (``more``)."""
    fault = request.query.get("manifest")
    if fault == "missing":
        raise web.HTTPNotFound
    if fault == "broken":
        return web.Response(text='{"abp": "0.1", "app":', content_type="application/json")
    document = manifest(request.query)
    if fault == "version":
        document["abp"] = "7.0"
    elif fault == "app":
        document["app"] = {"id": "another.app", "name": "Another", "version": "9"}
    elif fault == "more":
        document["capabilities"] = [*document["capabilities"], {"name": "export.everything"}]
    kind = "text/plain" if fault == "text" else "application/json"
    return web.json_response(document, content_type=kind, headers={"Cache-Control": "max-age=60"})


@routes.get("/favicon.ico")
async def favicon(_request: web.Request) -> web.FileResponse:
    """The icon, for browsers that ask for it by its old name."""
    return web.FileResponse(STATIC / "icon.svg")
