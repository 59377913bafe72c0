"""Record a session once, replay it without a browser: python examples/replay.py URL FILE

With a URL of an app (such as the one `abp fixture` prints) the conversation is recorded; without it is replayed.
"""

import asyncio
import sys
import time
from pathlib import Path

from transports import Session, connect


async def report(app: Session) -> str:
    """The program under test: it does not know which of the two it talks to."""
    page = await app.call("convert.markdownToHtml", {"markdown": "# Sales\n\n- tea\n- coffee"})
    file = page.artifact().path
    assert file is not None, "the local store has paths"
    document = await app.call("export.pdf", {"html": Path(file).read_text(encoding="utf-8")})
    ref = document.artifact()
    return f"{ref.mime_type} {ref.sha256}"


async def main(file: str, url: str | None = None) -> None:
    started = time.perf_counter()
    async with connect(url, record=file) if url else connect(f"replay:{file}") as app:
        print(await report(app))
    print(f"{app.transport.name}: {time.perf_counter() - started:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(*reversed(sys.argv[1:])))
