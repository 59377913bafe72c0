"""Drive a page that speaks no protocol, with a script of our own: python examples/any_page.py

The page is examples/adapters/page.html, served under a policy that allows nothing but its own script.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from transports import connect

FOLDER = Path(__file__).parent / "adapters"


@asynccontextmanager
async def serve_page() -> AsyncIterator[str]:
    """Serve the page and give its address."""

    async def page(request: web.Request) -> web.FileResponse:
        policy = {"Content-Security-Policy": "default-src 'none'; script-src 'self'"}
        return web.FileResponse(FOLDER / (request.match_info["name"] or "page.html"), headers=policy)

    application = web.Application()
    application.router.add_get("/{name:(page[.]js)?}", page)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def main() -> None:
    async with serve_page() as url, connect(url, adapter=FOLDER / "report.js") as app:
        for capability in ("table.csv", "chart.png", "report.download"):
            result = await app.call(capability)
            print(result.summary())


if __name__ == "__main__":
    asyncio.run(main())
