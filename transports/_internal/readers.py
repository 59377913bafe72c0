"""Subprocess with limits that reads a file of an app, such as an image or a PDF."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Maximum size of a file in bytes.
MAX_SOURCE = 64 << 20
#: Programs in reader_programs.py, and their limits of CPU time in seconds.
_SECONDS = {"pdf_page": 10, "pdf_text": 15, "thumbnail": 15}
#: Program that makes a small picture of a MIME type, and its argument: width in pixels, or bytes of the picture.
PICTURES: Mapping[str, tuple[str, int]] = {
    "application/pdf": ("pdf_page", 480),
    **{f"image/{kind}": ("thumbnail", 300_000) for kind in ("tiff", "png", "jpeg", "gif", "webp", "bmp", "avif")},
}


async def run_reader(program: str, data: bytes, *arguments: int) -> tuple[dict[str, Any], bytes] | None:
    """Run a program of reader_programs.py on ``data``. Return the JSON in the first line of its output, and the rest of
    the output. Return ``None`` if the program cannot be started, fails (for example because of the content or a missing
    library), runs longer than 20 seconds, or exceeds its limits of CPU time or memory; also in a frozen program, which
    has no interpreter to run it."""
    if _is_frozen():
        return None
    try:
        process = await asyncio.create_subprocess_exec(
            *_command(program, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except (NotImplementedError, OSError):
        return None
    try:
        async with asyncio.timeout(20.0):
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
    return _parse_output(out)


def run_reader_blocking(
    program: str, data: bytes, limit: int, *, timeout: float
) -> tuple[dict[str, Any], bytes] | None:
    """Run a program as :func:`run_reader` does, but block for up to ``timeout`` seconds. ``limit`` is the program's
    first number."""
    if _is_frozen():
        return None
    try:
        process = subprocess.run(
            _command(program, limit),
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if process.returncode != 0:
        return None
    return _parse_output(process.stdout)


def _is_frozen() -> bool:
    """Whether this is a program made by PyInstaller. Its ``sys.executable`` is the program itself, not an
    interpreter."""
    return bool(getattr(sys, "frozen", False))


def _command(program: str, *arguments: int) -> list[str]:
    path = str(Path(__file__).with_name("reader_programs.py"))
    return [sys.executable, "-I", path, program, *map(str, (_SECONDS[program], *arguments))]


def _parse_output(out: bytes) -> tuple[dict[str, Any], bytes]:
    about, _, content = out.partition(b"\n")
    return json.loads(about), content
