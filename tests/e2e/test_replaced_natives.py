"""Pages that replace the natives that our scripts use, by what throws or is no function."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.replaced import FORMS, WAYS, rotated, targets, targets_by_global, try_page
from transports import Browser

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("way", WAYS)
async def test_calls_work_in_a_page_that_replaces_all_natives(browser: Browser, tmp_path: Path, way: str) -> None:
    # without these, the page cannot print nor click
    replaced = [
        target for target in targets() if target not in (("window", "print"), ("HTMLElement.prototype", "click"))
    ]
    cells = await try_page(browser, "all", replaced, way, FORMS, tmp_path)
    assert [cell for cell in cells if cell.fault] == []
    assert {cell.call for cell in cells} >= {"json", "small", "large", "upload", "print", "thrown into the app"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
async def test_calls_work_in_a_page_that_replaces_one_global(browser: Browser, tmp_path: Path, way: str) -> None:
    failed = []
    for number, (name, replaced) in enumerate(targets_by_global().items()):
        folder = tmp_path / name
        folder.mkdir()
        cells = await try_page(browser, name, replaced, way, rotated(number), folder)
        failed += [cell for cell in cells if cell.fault]
    assert failed == []
