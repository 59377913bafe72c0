"""Rows of the command's lists in aligned columns, as a terminal shows them."""

from __future__ import annotations

from rich.cells import cell_len

from transports.surfaces.cli._output import aligned_rows


def test_a_wide_character_takes_two_cells() -> None:
    lines = aligned_rows([("报表.导出", "a report"), ("export", "a file"), ("e\u0301tat", "combined")])
    starts = {cell_len(line[: line.index(text)]) for line, text in zip(lines, ("a rep", "a fi", "comb"), strict=True)}
    assert starts == {cell_len("报表.导出") + 2}


def test_long_cell_shifts_only_its_row() -> None:
    long = "x" * 200
    assert aligned_rows([("a", "b"), (long, "c"), ("d", "e")]) == [
        f"a{' ' * 81}b", f"{long}  c", f"d{' ' * 81}e"
    ]  # fmt: skip


def test_aligned_rows_right_align_numbers_and_clean_text() -> None:
    assert aligned_rows([("a", "1,000", "x\n\x1b[31my"), ("bb", "7", "")], numbers=(1,)) == [
        "a   1,000  x �[31my", "bb      7"
    ]  # fmt: skip
    assert aligned_rows([]) == []
