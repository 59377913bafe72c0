"""The pytest plugin ``abp_transports``: apps that speak ABP in tests (``docs/testing.md``).

It is loaded by every pytest in an environment that has this package, so it imports nothing but pytest until a test asks
for one of its fixtures, brings no event loop of its own and changes no test that does not ask.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from webapp_fixture import Fixture

    from ..session.session import Session
    from ..sync import ArtifactStore, Browser
    from ..sync import Session as BlockingSession
    from .assertions import Golden
    from .failure_report import Keeper

_KEEPER: pytest.StashKey[Keeper] = pytest.StashKey()
_HOW = "@pytest.mark.abp('http://…'), --abp-target, a fixture abp_target of your own, or the fixture abp_fixture_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("abp", "apps that speak ABP (abp-transports)")
    group.addoption("--abp-target", metavar="URL", help="The app that abp_app drives where a test names none.")
    group.addoption(
        "--abp-transport",
        metavar="NAME",
        action="append",
        default=[],
        help="Run tests that use abp_app over this transport; repeat it for several.",
    )
    group.addoption(
        "--abp-output",
        metavar="DIR",
        default="abp-results",
        help="Folder for what failed tests leave behind: artifacts, messages, trace (default: abp-results).",
    )
    group.addoption("--abp-update-golden", action="store_true", help="Write golden files instead of comparing.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "abp(target, transport='auto', **options): the app of abp_app; options are those of connect()"
    )
    config.addinivalue_line("markers", "abp_transports(*names): run the test once over each of these transports")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "abp_transport" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("abp_transports")
    names = marker.args if marker is not None else metafunc.config.getoption("--abp-transport")
    if names:
        metafunc.parametrize("abp_transport", list(names))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    keeper = item.stash.get(_KEEPER, None)
    if keeper is not None and report.failed and report.when in ("setup", "call"):
        report.sections.append(("abp", keeper.keep()))
    return report


# --- what a test is about ---------------------------------------------------------------------------------------------


@pytest.fixture
def abp_transport(request: pytest.FixtureRequest) -> str:
    """The name of the transport: what the test is parametrised with, what its marker says, or ``auto``."""
    marker = request.node.get_closest_marker("abp")
    return str(marker.kwargs.get("transport", "auto")) if marker is not None else "auto"


@pytest.fixture
def abp_target(request: pytest.FixtureRequest, abp_transport: str, _abp_pages: Callable[[Path], str]) -> str:
    """The app: the marker's, else ``--abp-target``, else the reference app if the test uses it. An HTML file beside the
    test is served, with its folder. Override it for an app whose address is known at run time only."""
    marker = request.node.get_closest_marker("abp")
    given = marker.args[0] if marker is not None and marker.args else request.config.getoption("--abp-target")
    if given:
        page = request.path.parent / str(given)
        return _abp_pages(page) if page.suffix in (".html", ".htm") and page.is_file() else str(given)
    if "abp_fixture_app" not in request.fixturenames:
        raise pytest.UsageError(f"{request.node.nodeid}: which app is meant? Say it with {_HOW}")
    served: Fixture = request.getfixturevalue("abp_fixture_app")
    return {"websocket": served.ws_url, "postmessage": served.embed_url}.get(abp_transport, served.url)


@pytest.fixture(scope="session")
def _abp_pages() -> Iterator[Callable[[Path], str]]:
    from .failure_report import serving

    with serving() as address_of:
        yield address_of


@pytest.fixture(scope="session")
def abp_fixture_app() -> Iterator[Fixture]:
    """The reference app, Workbench, served on 127.0.0.1 for the test session: ``url``, ``ws_url``, ``embed_url``."""
    from .failure_report import served

    with served() as fixture:
        yield fixture


@pytest.fixture(scope="session")
def abp_browser() -> Iterator[Browser]:
    """One browser for all blocking sessions of the test session; each has its own cookies and storage."""
    from ..sync import Browser

    with Browser() as browser:
        yield browser


@pytest.fixture
def abp_artifacts(tmp_path: Path) -> ArtifactStore:
    """The store of the test, blocking; its files are in ``tmp_path / "artifacts"``."""
    from ..sync import open_store

    return open_store(str(tmp_path / "artifacts"))


@pytest.fixture
def abp_golden(request: pytest.FixtureRequest) -> Golden:
    """Golden files in the folder ``golden`` beside the test: ``abp_golden.check(ref, "report.pdf")``."""
    from .assertions import Golden

    update = request.config.getoption("--abp-update-golden")
    return Golden(request.path.parent / "golden", update=update, kept=_output(request))


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def abp_app(
    request: pytest.FixtureRequest, abp_target: str, abp_transport: str, abp_artifacts: ArtifactStore, tmp_path: Path
) -> Iterator[BlockingSession]:
    """A blocking session (``transports.sync``) with the app. In a test that also uses ``page`` of pytest-playwright it
    drives that page; otherwise a page of :func:`abp_browser`."""
    from ..sync import connect
    from .failure_report import Keeper

    options = _options(request, abp_target, abp_transport)
    own = not {"page", "browser", "profile", "cdp_url", "context", "storage_state"} & set(options)
    if own and _is_page(abp_target):
        options["browser"] = request.getfixturevalue("abp_browser")
    session = connect(abp_target, transport=abp_transport, store=abp_artifacts, **options)
    keeper = request.node.stash[_KEEPER] = Keeper(_output(request), tmp_path / "artifacts")
    keeper.log.listen(session.transport)
    with session as app:
        if "page" not in options:
            keeper.trace(app.transport)
        try:
            yield app
        finally:
            keeper.end()


@pytest.fixture
def abp_app_async(
    request: pytest.FixtureRequest, abp_target: str, abp_transport: str, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Session]]:
    """``async with abp_app_async() as app``: a session in the test's own event loop, whichever plugin runs it. It takes
    the options of :func:`transports.connect`. An asynchronous ``page`` (pytest-playwright-asyncio) is driven if the
    test uses it."""
    from ..session.connect import connect
    from .failure_report import Keeper

    given = _options(request, abp_target, abp_transport)
    keeper = request.node.stash[_KEEPER] = Keeper(_output(request), tmp_path / "artifacts")

    @contextlib.asynccontextmanager
    async def connected(**options: Any) -> AsyncIterator[Session]:
        options = {"store": tmp_path / "artifacts", **given, **options}
        session = connect(abp_target, transport=abp_transport, **options)
        keeper.log.listen(session.transport)
        wanted, skipped = "page" not in options, pytest.skip.Exception
        async with session as app, keeper.traced(app.transport, wanted=wanted, unless=skipped):
            yield app

    return connected


def _options(request: pytest.FixtureRequest, target: str, transport: str) -> dict[str, Any]:
    marker = request.node.get_closest_marker("abp")
    options: Mapping[str, Any] = marker.kwargs if marker is not None else {}
    options = {name: value for name, value in options.items() if name != "transport"}
    if _is_page(target) and transport in ("auto", "playwright") and "page" in request.fixturenames:
        options = {**options, "page": request.getfixturevalue("page")}
    return dict(options)


def _is_page(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _output(request: pytest.FixtureRequest) -> Path:
    """The folder of a test below ``--abp-output``; it is made when there is something to put into it."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.nodeid).strip("-.")[-120:]
    return request.config.rootpath / str(request.config.getoption("--abp-output")) / name
