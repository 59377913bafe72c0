"""The answer of a call on stdout: where its files are, and a small answer itself."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ...protocol.plain_text import plain_json
from .output import evidence_lines, print_note, print_text

if TYPE_CHECKING:
    from ...routing import Result

__all__ = ["print_result", "print_warnings"]

#: Characters of a summary, which are enough for hundreds of files.
_MAX_SUMMARY = 100_000


def print_result(result: Result) -> None:
    """Print a result for people. A small answer without files is printed itself: on a terminal indented and in colour,
    else as one line of JSON, then where it is kept. Warnings go to stderr."""
    print_warnings(result)
    on_terminal = sys.stdout is not None and sys.stdout.isatty() and result.small_answer() is not None
    if on_terminal:
        _print_value(result.data)
    print_text(replace(result, warnings=()).summary(max_chars=_MAX_SUMMARY, with_answer=not on_terminal))
    for line in evidence_lines(result.evidence):
        print_text(line)


def print_warnings(result: Result) -> None:
    """Print the warnings of a result on stderr, a line each."""
    for warning in result.warnings:
        print_note(f"warning: {warning}")


def _print_value(value: object) -> None:
    """Print JSON in colour, if the terminal has some and ``NO_COLOR`` is not set."""
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    text = plain_json(json.dumps(value, indent=2, ensure_ascii=False))
    encoding = sys.stdout.encoding or "utf-8"
    coloured = JSONHighlighter()(text.encode(encoding, "replace").decode(encoding))
    Console(file=sys.stdout).print(coloured, soft_wrap=True)
