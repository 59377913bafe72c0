"""An app made of Python functions, for tests of code that uses the kit: no browser, the same session, real files."""

import asyncio
from collections.abc import Mapping

from transports import MemoryTransport, connect
from transports.testing import Call


async def export_report(params: Mapping[str, object], call: Call) -> object:
    """Answer a report as a PDF."""
    await call.progress(percentage=50, stage="rendering")
    return {
        "document": {"content": b"%PDF-1.4 ...", "mimeType": "application/pdf", "filename": "report.pdf"},
        "pages": 1,
    }


async def main() -> None:
    async with connect("memory:", transport=MemoryTransport({"export.report": export_report})) as app:
        result = await app.call("export.report", on_progress=lambda progress: print(progress.stage))
        print(result.summary())


if __name__ == "__main__":
    asyncio.run(main())
