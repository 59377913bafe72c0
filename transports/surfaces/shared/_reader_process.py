"""Subprocess with limits that reads a file of an app, such as an image or a PDF."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

#: Maximum size of a file in bytes, and seconds until a program is ended.
MAX_SOURCE, _TIMEOUT = 64 << 20, 20.0
#: Programs beside this module, and their limits of CPU time in seconds.
_SECONDS = {"pdf_page": 10, "pdf_text": 15, "thumbnail": 15}
_LIMITED = str(Path(__file__).with_name("limited_program.py"))


async def run_reader(program: str, data: bytes, *arguments: int) -> tuple[dict[str, Any], bytes] | None:
    """Run the program of this name beside this module on ``data``, with these arguments.

    Return the JSON of its first line of output and the rest of the output. Return ``None`` if the program fails, as for
    refused content or a missing library, runs longer than 20 seconds, or exceeds its limits of CPU time or memory."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        _LIMITED,
        str(_SECONDS[program]),
        str(Path(__file__).with_name(f"{program}.py")),
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            out, _ = await process.communicate(data)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        return None
    about, _, content = out.partition(b"\n")
    return json.loads(about), content
