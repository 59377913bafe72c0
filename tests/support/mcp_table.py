"""What reaches a client of the MCP bridge inside answers, in bytes: the table of ``docs/mcp.md``.

``python -m tests.support.mcp_table`` measures and writes it; ``tests/e2e/test_mcp_table.py`` compares.
"""

from __future__ import annotations

import asyncio
import base64
import io
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp import Client
from mcp_types import ImageContent, ResourceLink
from PIL import Image

from tests.support.mcp_clients import URL, Apps, called, read_as_resource, read_with_tool, size
from transports import BinaryData
from transports.artifacts import open_store
from transports.protocol._strict_json import encode_json
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options
from transports.testing import Call

__all__ = ["Row", "documented", "measure"]

DOCS = Path(__file__).parents[2] / "docs" / "mcp.md"
BEGIN, END = "<!-- measured: python -m tests.support.mcp_table -->", "<!-- /measured -->"
HEAD = "| result | its bytes | inline: text and links | inline: pictures |"


@dataclass(frozen=True, slots=True)
class Row:
    """One result: its size, and what of it came with the answer. Bytes."""

    what: str
    whole: int
    message: int
    pictures: int

    def __str__(self) -> str:
        return f"| {self.what} | {self.whole:,} | {self.message:,} | {self.pictures:,} |"


def png(side: int) -> bytes:
    """Noise, which cannot be made smaller."""
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(1).randbytes(side * side * 3)).save(out, "PNG")
    return out.getvalue()


def results() -> dict[str, tuple[object, bytes]]:
    """What the app answers, and the bytes that must be found in the store."""
    text, small, large = b"x" * 1024, png(315), png(1300)
    rows = {"rows": [{"row": number, "text": "é" * 20} for number in range(30_000)]}
    pdf = b"%PDF-1.7\n" + random.Random(2).randbytes(50 << 20)
    return {
        "1 KB text": (BinaryData.from_bytes(text, mime_type="text/plain"), text),
        "2 MB JSON": (rows, encode_json(rows)),
        "300 KB PNG": (BinaryData.from_bytes(small, mime_type="image/png"), small),
        "5 MB PNG": (BinaryData.from_bytes(large, mime_type="image/png"), large),
        "50 MB PDF": (BinaryData.from_bytes(pdf, mime_type="application/pdf"), pdf),
    }


async def measure() -> list[Row]:
    """A call for each result. Raises :class:`AssertionError` where an artifact is not, byte for byte, what the app
    gave, read as a resource and with the tool."""
    made = results()

    async def give(params: Mapping[str, object], call: Call) -> object:
        return made[str(params["what"])][0]

    rows = []
    bridge = Bridge(Options(), open_store("memory:"), connect=Apps({"give": give}))
    async with Client(bridge.server, mode="2026-07-28") as client:
        await called(client, "abp_connect", url=URL)
        for what, (_, data) in made.items():
            answer = await client.call_tool("abp_give", {"what": what})
            assert not answer.is_error, answer
            links = [item for item in answer.content if isinstance(item, ResourceLink) and item.size == len(data)]
            assert await read_as_resource(client, links[0].uri) == data, what
            if len(data) < 10 << 20:  # slices of 50 MB would take long, and show no more
                assert await read_with_tool(client, links[0].uri) == data, what
            pictures = [base64.b64decode(item.data) for item in answer.content if isinstance(item, ImageContent)]
            rows.append(Row(what, len(data), size(answer), sum(map(len, pictures))))
    return rows


def documented() -> list[Row]:
    """The table as it stands in the docs."""
    lines = DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(cell[0], *(int(number.replace(",", "")) for number in cell[1:])) for cell in cells]


def main() -> None:
    table = "\n".join([HEAD, "|---|---|---|---|", *map(str, asyncio.run(measure()))])
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
