"""The page *Troubleshooting*: each message on it is one that the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
MESSAGES = re.findall(r'^### "(.+)"$', PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def texts() -> tuple[str, ...]:
    """Every text in the code, with ``…`` for each value in an f-string."""
    return tuple(
        text
        for path in (ROOT / "transports").rglob("*.py")
        for text in texts_of(ast.parse(path.read_text(encoding="utf-8")))
    )


def texts_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.load
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_code(message: str) -> None:
    pattern = ".*".join(map(re.escape, (piece for piece in message.split("…"))))
    assert any(re.search(pattern, text, re.DOTALL) for text in texts())


def test_there_are_twenty_questions_and_each_has_an_answer() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(MESSAGES) == len(set(MESSAGES)) >= 20
    answers = re.split(r"^##+ .*$", page, flags=re.MULTILINE)[1:]
    assert len([text for text in answers if text.strip()]) >= len(MESSAGES)
    assert all(re.search(rf'^### "{re.escape(one)}"\n\n\S', page, re.MULTILINE) for one in MESSAGES)


@pytest.mark.parametrize(
    ("page", "links"),
    [
        (
            "README.md",
            (
                "docs/index.md",
                "docs/tutorial.md",
                "docs/troubleshooting.md",
                "agenticbrowserprotocol.io",
            ),
        ),
        (
            "docs/index.md",
            ("adapters.md", "webmcp.md", "batch.md", "scale.md", "observability.md", "troubleshooting.md"),
        ),
        ("docs/troubleshooting.md", ("https://agenticbrowserprotocol.io",)),
    ],
)
def test_a_newcomer_is_led_there(page: str, links: tuple[str, ...]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [link for link in links if link not in text] == []
