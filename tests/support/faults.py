"""The tests, the proofs and the count of ``docs/faults.md``, made from the markers of the tests (:mod:`.markers`).

Fault, cause and outcome of a row are written by hand, and so is a proof that says "partly: " and what is missing. The
rest of its columns is made::

    python -m tests.support.faults            # write the page
    python -m tests.support.faults --check    # say what is wrong with it, and change nothing
"""

from __future__ import annotations

import re
import sys

from tests.support.markers import ROOT, Page, Tests, cells

__all__ = ["PAGE", "problems", "render"]

_PARTLY = "partly: "
_ROW = re.compile(r"\| \d+ \|")
_COUNT = re.compile(r"^\d+ rows are shown in full, \d+ partly, \d+ not at all\.$", re.MULTILINE)


def _rows(page: str) -> list[list[str]]:
    return [cells(line) for line in page.splitlines() if _ROW.match(line)]


def _proof(row: list[str], tests: Tests) -> str:
    if row[0] not in tests:
        return "none"
    return row[5] if row[5].startswith(_PARTLY) else "full"


def render(page: str, tests: Tests) -> str:
    """Return the page with its tests, proofs and count made anew; all else stays."""
    lines = page.splitlines()
    proofs = []
    for at, line in enumerate(lines):
        if _ROW.match(line):
            row = cells(line)
            named = "<br>".join(f"`tests/{test}`" for test in tests.get(row[0], []))
            proofs.append(_proof(row, tests))
            lines[at] = f"| {' | '.join([*row[:4], named, proofs[-1]])} |"
    full, none = proofs.count("full"), proofs.count("none")
    count = f"{full} rows are shown in full, {len(proofs) - full - none} partly, {none} not at all."
    return _COUNT.sub(count, "\n".join(lines) + "\n")


def problems(page: str, tests: Tests) -> list[str]:
    """Return what is wrong with the page, besides columns that are out of date."""
    rows = _rows(page)
    numbers = [row[0] for row in rows]
    wrong = [f"{row[0]} has {len(row)} columns, and not 6" for row in rows if len(row) != 6]
    if numbers != [str(number) for number in range(1, len(rows) + 1)]:
        wrong.append("the rows are not numbered from 1 on")
    wrong += [f"no test shows {number}" for number in numbers if number not in tests]
    wrong += [f"{', '.join(names)}: there is no row {id}" for id, names in tests.items() if id not in numbers]
    if not _COUNT.search(page):
        wrong.append("the count of the rows is missing")
    return wrong


PAGE = Page(ROOT / "docs" / "faults.md", "fault", int, render, problems)

if __name__ == "__main__":
    sys.exit(PAGE.main())
