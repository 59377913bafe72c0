"""Each message on the page of troubleshooting is a message of the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
MESSAGES = re.findall(r'^### "(.+)"$', PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def texts() -> tuple[str, ...]:
    """Every text in the code, with ``…`` for each value in an f-string."""
    found = []
    for path in (ROOT / "transports").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


@pytest.mark.load
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_code(message: str) -> None:
    pattern = re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)
    assert any(pattern.search(text) for text in texts())
