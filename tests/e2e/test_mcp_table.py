"""How much of a result reaches a client inside an answer: measured, held against the limits and against the docs."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.mcp_table import documented, measure
from transports.surfaces.mcp._options import Options

#: Lengths of ids and of durations differ from run to run, and pictures with the version of Pillow.
CLOSE = 0.1


@pytest.mark.slow
async def test_inline_content_is_bounded_as_the_docs_say() -> None:
    rows, limits = await measure(), Options()
    print(*rows, sep="\n")
    for row in rows:
        assert row.message <= limits.max_answer_bytes and row.pictures <= limits.max_image_bytes, row
    said = documented()
    assert [row.what for row in said] == [row.what for row in rows]
    for row, old in zip(rows, said, strict=True):
        for now, then in ((row.whole, old.whole), (row.message, old.message), (row.pictures, old.pictures)):
            assert now == pytest.approx(then, rel=CLOSE), f"{row}: run python -m tests.support.mcp_table"
