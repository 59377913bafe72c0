"""A server made with fastmcp: a chart as an image, a table as structured content, a report as a file."""

import random

from fastmcp import FastMCP
from fastmcp.utilities.types import File, Image

server: FastMCP = FastMCP("charts")
BYTES = random.Random(2)


@server.tool  # type: ignore[untyped-decorator]
def chart() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n" + BYTES.randbytes(700_000), format="png")


@server.tool  # type: ignore[untyped-decorator]
def rows(count: int) -> list[dict[str, int]]:
    return [{"row": number, "square": number * number} for number in range(count)]


@server.tool  # type: ignore[untyped-decorator]
def report() -> File:
    return File(data=b"%PDF-1.7\n" + BYTES.randbytes(900_000), format="pdf", name="report")


server.run(show_banner=False)
