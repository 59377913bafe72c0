"""``/faults/...``: downloads that go wrong on purpose. The ``fault.*`` capabilities hand out these addresses.

Each ends in ``/<size>/<seed>/<name>``, where size is what the app declares; the body lies by ``delta`` bytes.
"""

from aiohttp import web

from webapp_fixture.downloads import check_access, file_of, headers_for, send, send_file
from webapp_fixture.generate import generate
from webapp_fixture.state import STATE

FILE = r"{size:\d{1,10}}/{seed:\d{1,10}}/{name}"
routes = web.RouteTableDef()


def _delta(request: web.Request) -> int:
    text = request.query.get("delta", "1")
    return int(text) if text.isdigit() else 1


async def _cut(request: web.Request, size: int, seed: int, stop: int) -> web.StreamResponse:
    """Promise ``size`` bytes, send ``stop`` of them, drop the connection."""
    response = web.StreamResponse(headers=headers_for(request, size, seed))
    response.content_length = size
    await response.prepare(request)
    for piece in generate(stop, seed):
        await response.write(piece)
    if request.transport is not None:
        request.transport.close()  # sends what is buffered first
    return response


@routes.get("/faults/short/" + FILE)
async def short(request: web.Request) -> web.StreamResponse:
    """Fewer bytes than the app declared: in a whole answer, or (``cut``) in one that breaks off early."""
    size, seed = file_of(request)
    stop = max(0, size - _delta(request))
    if "cut" in request.query:
        return await _cut(request, size, seed, stop)
    return await send_file(request, stop, seed)


@routes.get("/faults/long/" + FILE)
async def long(request: web.Request) -> web.StreamResponse:
    """More bytes than the app declared; with ``endless``, without a length and without an end."""
    size, seed = file_of(request)
    if "endless" not in request.query:
        return await send_file(request, size + _delta(request), seed)
    response = web.StreamResponse(headers=headers_for(request, size, seed))
    return await send(request, response, 1 << 50, seed, pause=0.05)


@routes.get("/faults/cut_once/{key}/" + FILE)
async def cut_once(request: web.Request) -> web.StreamResponse:
    """The first request for a key is cut half way; later ones (with ``Range`` or not) are served well."""
    size, seed = file_of(request)
    if request.method == "GET" and request.app[STATE].visit(request.match_info["key"]) == 0:
        return await _cut(request, size, seed, size // 2)
    return await send_file(request, size, seed)


@routes.get(r"/faults/status/{status:[45]\d\d}/{times:\d{1,9}}/{key}/" + FILE)
async def status(request: web.Request) -> web.StreamResponse:
    """That HTTP status for the first ``times`` requests of a key (0: always); ``retry`` is the Retry-After."""
    times = int(request.match_info["times"])
    if times and request.app[STATE].visit(request.match_info["key"]) >= times:
        return await send_file(request, *file_of(request))
    code = int(request.match_info["status"])
    response = web.Response(status=code, text="this download fails on purpose\n")
    if request.query.get("retry", "").isdigit():
        response.headers["Retry-After"] = request.query["retry"]
    return response


@routes.get("/faults/redirect_away/" + FILE)
async def redirect_away(request: web.Request) -> web.StreamResponse:
    """After the credential check, on to the other origin, which serves the file to anyone."""
    check_access(request)
    size, seed = file_of(request)
    target = f"{request.app[STATE].other_origin}faults/landing/{size}/{seed}/{request.match_info['name']}"
    raise web.HTTPFound(target)


@routes.get("/faults/landing/" + FILE)
async def landing(request: web.Request) -> web.StreamResponse:
    """Where ``redirect_away`` leads. The record of requests tells which credentials came along."""
    return await send_file(request, *file_of(request))
