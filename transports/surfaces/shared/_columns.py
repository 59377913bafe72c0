"""Rows of text in aligned columns, for terminals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...protocol._plain_text import plain_line

#: Most terminal cells to which a column is filled up; a longer cell shifts its own row alone.
_MAX_WIDTH = 80


def aligned_rows(rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> list[str]:
    """Return each row as a line without control characters. The columns ``numbers`` are aligned to the right.

    Widths are those in a terminal, where a character of Chinese, Japanese or Korean takes two cells."""
    from rich.cells import cell_len  # late: only for lists

    plain = [tuple(map(plain_line, row)) for row in rows]
    widths = [min(max(map(cell_len, column)), _MAX_WIDTH) for column in zip(*plain, strict=True)]
    lines = []
    for row in plain:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - cell_len(cell))
            cells.append(padding + cell if index in numbers else cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines
