"""A page of our own embeds three apps, drives them at once over postMessage, and passes their files to Python.

python examples/host_page.py http://127.0.0.1:8000/embed photo.png
"""

import asyncio
import html
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from transports import connect

CSV = "Month,Sold\nJan,120\nFeb,150\n"


@asynccontextmanager
async def serve_host_page(app_url: str) -> AsyncIterator[str]:
    """Serve the host page, on an origin of its own, and give its address."""
    page = Path(__file__).with_name("host_page.html").read_text("utf-8").replace("APP_URL", html.escape(app_url))

    async def host(_request: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    application = web.Application()
    application.router.add_get("/", host)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def main(app_url: str, picture: str) -> None:
    async with serve_host_page(app_url) as url, connect(url, store="collected") as host:
        result = await host.call("apps.collect", {"csv": CSV, "picture": Path(picture)})
        print(result.summary())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
