"""An ffmpeg of this machine where Playwright looks for its own, which has to be downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.needs import missing
from transports.playwright._find import find_ffmpeg


@contextmanager
def placed_ffmpeg(folder: Path) -> Iterator[None]:
    """Browsers that are started in the block make videos. ``folder`` stands for Playwright's own."""
    if (found := shutil.which("ffmpeg")) is None:
        missing("ffmpeg", "videos are made with it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(folder))
        path, there = find_ffmpeg()
        assert not there
        path.parent.mkdir(parents=True)
        path.symlink_to(found)
        assert find_ffmpeg() == (path, True)
        yield
