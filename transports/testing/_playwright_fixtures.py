"""Fixtures that replace those of pytest-playwright, but not the user's own.

Of two plugins with one fixture, pytest takes that of the later one: so these are registered when all are loaded. They
are a module, as pytest warns of a fixture for the whole session that is a method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..playwright._find import find_browser

if TYPE_CHECKING:
    from playwright.sync_api import BrowserType


@pytest.fixture(scope="session")
def launch_browser(
    launch_browser: Callable[..., object],
    browser_type_launch_args: Mapping[str, object],
    browser_type: BrowserType,
    connect_options: Mapping[str, object] | None,
) -> Callable[..., object]:
    """Start the browser that ``abp doctor`` finds, if Playwright has no Chromium of its own and none is named."""
    if connect_options or browser_type.name != "chromium" or _is_installed(browser_type.executable_path):
        return launch_browser

    def launch(**options: object) -> object:
        names_browser = {"executable_path", "channel"} & (browser_type_launch_args.keys() | options.keys())
        choice = None if names_browser else find_browser()
        if choice is not None:
            options["executable_path"] = choice.path
        return launch_browser(**options)

    return launch


def _is_installed(executable: str) -> bool:
    """Return whether Playwright has its Chromium, or the headless shell of the same version, in a folder beside it."""
    for folder in Path(executable).parents:
        if folder.name.startswith("chromium-"):
            # The pattern for chromium-1200 is chromium*-1200, which fits chromium_headless_shell-1200 too.
            return any(folder.parent.glob(folder.name.replace("-", "*-")))
    return Path(executable).is_file()
