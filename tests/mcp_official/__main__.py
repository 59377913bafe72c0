"""``python -m tests.mcp_official``: run the official clients against ``abp mcp``, and show what they say."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.mcp_official.node import Missing, installed
from tests.mcp_official.running import ERAS, conformance, inspect_http, inspect_stdio


async def main() -> int:
    try:
        node = await asyncio.to_thread(installed)
    except Missing as error:
        print(f"not run: {error}", file=sys.stderr)
        return 2
    failed = False
    for era in ERAS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print((await conformance(node, era, Path(folder))).partition("=== SUMMARY ===")[2])
            except AssertionError as error:
                failed = True
                print(error)
    for inspect in (inspect_stdio, inspect_http):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{inspect.__name__}:", *await inspect(node, Path(folder)), sep="\n  ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
