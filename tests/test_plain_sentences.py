"""Sentences that a newcomer stumbled over, said plainly wherever they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (
            "docs/batch.md",
            "If any line is not a valid job, the command lists the first 20 faults with their lines and runs nothing.",
        ),
        (
            "docs/batch.md",
            "To fix them, edit a copy of `failed.jsonl` and run the same command with it and `--extend`.",
        ),
        (
            "transports/surfaces/cli/_batch.py",
            "To run failed jobs again: the same command with --retry-failed, or with a corrected copy of failed.jsonl ",
        ),
        ("transports/playwright/_transport.py", "is not valid JavaScript"),
        ("transports/session/_targets.py", "is not a target"),
        ("docs/adapters.md", "A script that is not valid JavaScript"),
        ("transports/surfaces/cli/_doctor.py", "supported; the full test suite passes on it"),
        (
            "docs/reference/settings.md",
            "whether answers without a file survive only a crash (`process`) or also a power cut (`disk`); "
            "files survive both",
        ),
        ("transports/surfaces/shared/_advice.py", "Retryable: no, not until something changes"),
        ("transports/surfaces/cli/_artifacts.py", "most recent; `--limit` shows more"),
        ("transports/surfaces/cli/_detached.py", "List, wait for or cancel detached calls."),
        ("docs/mcp.md", "Files stay until they are removed (`abp artifacts gc --ttl 7d`)."),
        ("README.md", "They stay until you remove them (`abp artifacts gc --ttl 7d`)"),
        ("docs/tutorial.md", "## Clean up"),
    ],
)
def test_a_sentence_says_it_plainly(file: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / file).read_text(encoding="utf-8").split("\n")).replace("  ", " ")
