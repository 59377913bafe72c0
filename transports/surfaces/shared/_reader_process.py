"""Runs a program that reads a file of an app, such as an image or a PDF, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

#: The largest file in bytes that is given to a program, and seconds until it is ended.
MAX_SOURCE, _TIMEOUT = 64 << 20, 20.0
#: The programs beside this module, and seconds of processor time that each may take.
_SECONDS = {"pdf_page": 10, "pdf_text": 15, "thumbnail": 15}
_LIMITED = str(Path(__file__).with_name("limited_program.py"))


async def run_reader(program: str, data: bytes, limit: int) -> tuple[dict[str, Any], bytes] | None:
    """Give ``data`` to the program of this name beside this module, with ``limit`` as its argument. Return the JSON of
    its first line and what follows; ``None`` if it fails, as it does for content that it refuses and for a library that
    is missing, or takes more than 20 seconds or the processor time or memory that it may have."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        _LIMITED,
        str(_SECONDS[program]),
        str(Path(__file__).with_name(f"{program}.py")),
        str(limit),
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
