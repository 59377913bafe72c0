"""Fixtures of the tests of the reference app: one browser, and one server and one initialised page for each module."""

import os
import shutil
from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.webapp_fixture.page import App, open_app
from webapp_fixture import Fixture, serve

module_fixture = pytest_asyncio.fixture(loop_scope="session", scope="module")


@module_fixture
async def fixture() -> AsyncIterator[Fixture]:
    async with serve() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("ABP_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    arguments = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=arguments)
        yield launched
        await launched.close()


@module_fixture
async def app(browser: Browser, fixture: Fixture) -> AsyncIterator[App]:
    opened = await open_app(browser, fixture.url)
    yield opened
    await opened.page.close()


@module_fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session
