"""Make a PDF of an HTML file with a running app: python examples/export_pdf.py http://127.0.0.1:8000/ page.html"""

import asyncio
import sys
from pathlib import Path

from transports import connect


async def main(url: str, page: str) -> None:
    async with connect(url) as app:
        result = await app.call("export.pdf", {"html": Path(page).read_text(encoding="utf-8")}, timeout=30)
        print(result.summary())  # the path, type and size of the file, and the data beside it


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
