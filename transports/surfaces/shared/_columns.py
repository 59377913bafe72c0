"""Rows of text in aligned columns, for terminals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...protocol._plain_text import plain_line


def aligned_rows(rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> list[str]:
    """Return each row as a line without control characters. The columns ``numbers`` are aligned to the right.

    Widths are those in a terminal, where a character of Chinese, Japanese or Korean takes two cells."""
    from rich.cells import cell_len  # slow to import, and only for lists

    plain = [tuple(map(plain_line, row)) for row in rows]
    # A cell that is wider than 80 only shifts its own row.
    widths = [min(80, max(map(cell_len, column))) for column in zip(*plain, strict=True)]
    lines = []
    for row in plain:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - cell_len(cell))
            if index in numbers:
                cells.append(padding + cell)
            else:
                cells.append(cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines
