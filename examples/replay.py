"""Record a session with an app once, then replay it without the app and without a browser.

python examples/replay.py session.jsonl http://127.0.0.1:8000/   records
python examples/replay.py session.jsonl                          replays
"""

import asyncio
import sys
import time

from transports import Session, connect


async def report(app: Session) -> str:
    """The program under test. It does not know whether it drives an app or a recording."""
    page = await app.call("convert.markdownToHtml", {"markdown": "# Sales\n\n- tea\n- coffee"})
    file = page.artifact().path
    assert file is not None, "the local store has paths"
    document = await app.call("export.pdf", {"html": file.read_text(encoding="utf-8")})
    ref = document.artifact()
    return f"{ref.mime_type} {ref.sha256}"


async def main(file: str, url: str | None = None) -> None:
    started = time.perf_counter()
    async with connect(url, record=file) if url else connect(f"replay:{file}") as app:
        print(await report(app))
    print(f"{app.transport.name}: {time.perf_counter() - started:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
