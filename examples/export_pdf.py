"""HTML to PDF through an app that is running: python examples/export_pdf.py http://127.0.0.1:8000/ page.html"""

import asyncio
import sys
from pathlib import Path

from transports import connect


async def main(url: str, page: str) -> None:
    async with connect(url) as app:
        result = await app.call("export.pdf", {"html": Path(page).read_text(encoding="utf-8")}, timeout=30)
        print(result.summary())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
