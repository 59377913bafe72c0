"""The pytest plugin ``abp_transports``: fixtures for tests of apps that speak ABP (``docs/testing.md``).

Every run of pytest in an environment with this package loads the plugin. So it imports little until a test requests one
of its fixtures, has no event loop of its own, and does not affect other tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import os
import re
import shlex
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from .. import playwright as browsers, sync
from .._internal.arguments import callers_traceback, with_short_traceback
from ..errors import ABPError, ContextLost, UsageError
from ..protocol._plain_text import is_page
from ..sync._bridge import SHARED

if TYPE_CHECKING:
    from webapp_fixture import Fixture

    from ..session._session import Session
    from ..session._views import View
    from ..sync._session import ArtifactStore, Session as BlockingSession
    from ..sync._views import View as BlockingView
    from ._assertions import Golden
    from ._failure_report import FailureReport

#: Options that take a number and are ini keys too: name, unit, help.
_NUMBERS = (
    ("timeout", "SECONDS", "Default timeout of abp_app and abp_app_async, for connecting and for each call."),
    ("slowmo", "MS", "Delay Playwright's steps in the plugin's browsers by so many milliseconds, to watch them."),
    ("keep_runs", "N", "Number of runs, including this one, whose reports of failed tests are kept (default: 1)."),
)
#: Name of a run: date, time and process id. Names sort by age; the process id shows whether the run is still active.
_RUN_NAME = re.compile(r"\d{8}-\d{6}-\d+")
_REPORT: pytest.StashKey[FailureReport] = pytest.StashKey()
_RUN: pytest.StashKey[str] = pytest.StashKey()
_NO_LOOP = "_abp_no_running_loop"


def number_option(config: pytest.Config, name: str) -> float | None:
    text = config.getoption(f"abp_{name}") or config.getini(f"abp_{name}")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise pytest.UsageError(f"abp_{name} must be a number above 0, not {text!r}")
    return number


def browser_options(config: pytest.Config) -> dict[str, Any]:
    options: dict[str, Any] = {}
    slow_mo = number_option(config, "slowmo")
    if slow_mo is not None:
        options["slow_mo"] = slow_mo
    if config.getoption("--abp-headed") or config.getini("abp_headed"):
        options["headless"] = False
    return options


def evidence_option(config: pytest.Config) -> dict[str, Any]:
    """Return no option if neither the command line nor the ini file names kinds."""
    text = str(config.getoption("--abp-evidence") or config.getini("abp_evidence"))
    if not text:
        return {}
    from ..session._evidence import GeneralEvidence, read_evidence  # late: each run of pytest imports this module

    return {"evidence": GeneralEvidence(read_evidence(text))}


def traces_here(options: Mapping[str, Any]) -> bool:
    """A page of the test is not traced, nor are sessions whose calls have traces, since a browser makes one trace at a
    time."""
    evidence = options.get("evidence")
    return "page" not in options and not (evidence and "trace" in evidence.kinds())


def output_folder(config: pytest.Config) -> Path:
    return config.rootpath / str(config.getoption("--abp-output"))


def is_server(target: str) -> bool:
    """A recording may be one of an MCP server."""
    return target.lower().startswith(("mcp", "replay:"))


def starts_browser(target: str, options: Mapping[str, object], *, shows_views: bool = False) -> bool:
    """Return whether a session needs a browser that its options do not name."""
    naming = {"page", "browser", "profile", "cdp_url", "browser_server", "context", "storage_state", "headless"}
    needs_browser = shows_views or is_page(target)
    return needs_browser and naming.isdisjoint(options)


def new_run_name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def remove_older_runs(folder: Path, name: str, keep: int) -> None:
    """Leave ``keep`` runs, including the run ``name``. Nothing is removed if this run has left no folder. Folders of
    unfinished runs and folders with other names stay."""
    if not (folder / name).is_dir():
        return
    older_runs = sorted(path for path in folder.iterdir() if _RUN_NAME.fullmatch(path.name) and path.name != name)
    surplus = max(len(older_runs) + 1 - keep, 0)
    for run in older_runs[:surplus]:
        if not _is_active(run.name):
            shutil.rmtree(run, ignore_errors=True)


def _is_active(name: str) -> bool:
    import psutil

    pid = int(name.rpartition("-")[2])
    return pid != os.getpid() and psutil.pid_exists(pid)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("abp", "apps that speak ABP (abp-transports)")
    group.addoption("--abp-target", metavar="URL", help="App of abp_app in tests that do not name one.")
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
        help="Folder for the reports of failed tests: recording, trace, artifacts (default: abp-results).",
    )
    kinds = "trace=on-failure,video,har,console,screenshot"
    evidence = f"Evidence to keep of calls of abp_app and abp_app_async: {kinds}."
    group.addoption("--abp-evidence", metavar="KINDS", help=evidence)
    parser.addini("abp_evidence", evidence, default="")
    group.addoption("--abp-update-golden", action="store_true", help="Write golden files instead of comparing.")
    for name, metavar, text in _NUMBERS:
        group.addoption(f"--abp-{name.replace('_', '-')}", metavar=metavar, help=text)
        parser.addini(f"abp_{name}", text)
    headed = "Show the browsers that abp_app and abp_app_async start."
    group.addoption("--abp-headed", action="store_true", help=headed)
    parser.addini("abp_headed", headed, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers ``abp`` and ``abp_transports``, check the options and name the run."""
    try:
        evidence_option(config)
    except UsageError as error:
        raise pytest.UsageError(f"--abp-evidence: {error.message}") from None
    for name, _, _ in _NUMBERS:
        number_option(config, name)
    config.stash[_RUN] = getattr(config, "workerinput", {}).get("abp_run") or new_run_name()
    config.addinivalue_line(
        "markers", "abp(target, transport='auto', **options): the app of abp_app; options are those of connect()"
    )
    config.addinivalue_line("markers", "abp_transports(*names): run the test once over each of these transports")
    if any(hasattr(plugin, "launch_browser") for plugin in config.pluginmanager.get_plugins()):
        from . import _playwright_fixtures

        config.pluginmanager.register(_playwright_fixtures, "abp_playwright_fixtures")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test over the transports named by its marker or the command line."""
    if "abp_transport" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("abp_transports")
    names = marker.args if marker is not None else metafunc.config.getoption("--abp-transport")
    if names:
        metafunc.parametrize("abp_transport", list(names))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the report of a failed test, and name it in pytest's own report."""
    if call.excinfo is not None and isinstance(call.excinfo.value, ContextLost):
        _advise_on_lost_page(item, call.excinfo.value)

    # Before the yield, since pytest makes its report from the exception.
    error_without_callers = _leave_callers_lines(item, call)
    report = yield
    if error_without_callers is not None and report.failed:
        report.longrepr = pytest.ExceptionInfo.from_exception(error_without_callers).exconly()

    failure_report = item.stash.get(_REPORT, None)
    if failure_report is not None and report.failed and report.when in ("setup", "call"):
        report.sections.append(("abp", failure_report.write()))
    return report


def _leave_callers_lines(item: pytest.Item, call: pytest.CallInfo[None]) -> ABPError | None:
    """If the error has no such lines, return it instead. With ``--full-trace`` nothing is changed."""
    if call.excinfo is None:
        return None
    error = call.excinfo.value
    if not isinstance(error, ABPError) or item.config.getoption("fulltrace"):
        return None
    callers = callers_traceback(error.__traceback__)
    if callers is None:
        return error
    call.excinfo = pytest.ExceptionInfo.from_exception(with_short_traceback(error).with_traceback(callers))
    return None


def _advise_on_lost_page(item: pytest.Item, error: ContextLost) -> None:
    if isinstance(item, pytest.Function) and {"page", "abp_app"} <= {*item.fixturenames}:
        error.add_note(
            "abp_app has opened the app in page before the test: leave out page.goto, "
            "or call connect(page.url, page=page) after it instead of using abp_app"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Insert :func:`_abp_no_running_loop` before all fixtures of a test with its own event loop."""
    if isinstance(item, pytest.Function) and _NO_LOOP not in item.fixturenames:
        opens_async = {"abp_app_async", "abp_open_view_async"} & set(item.fixturenames)
        uses_plugin = any(name.startswith("abp_") for name in item.fixturenames)
        is_async_test = uses_plugin and inspect.iscoroutinefunction(item.obj)
        if opens_async or is_async_test:
            item.fixturenames.insert(0, _NO_LOOP)


@pytest.fixture
def _abp_no_running_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the event loop of pytest-playwright, so that the test can run its own.

    After a use of ``page``, that plugin keeps a loop suspended in this thread for the rest of the run. asyncio treats
    it as running and refuses any other loop. It is restored before fixtures of a wider scope end."""
    if "page" in request.fixturenames and request.config.pluginmanager.hasplugin("playwright"):
        raise UsageError(
            f"{request.node.nodeid}: `page` of pytest-playwright blocks, so a test with an event loop cannot use it: "
            "make it a plain function with `page` and `abp_app`, or leave `page` out and take `abp_app_async`"
        )
    # Both functions are in asyncio.events.__all__, for programs that run a loop of their own.
    suspended = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(suspended)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["abp_run"] = node.config.stash[_RUN]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not hasattr(config, "workerinput"):
        keep = int(number_option(config, "keep_runs") or 1)
        # In a folder of another user, for example, pytest would end with an internal error.
        with contextlib.suppress(OSError):
            remove_older_runs(output_folder(config), config.stash[_RUN], keep)


# --- target and store ---------------------------------------------------------------------------------------------


@pytest.fixture
def abp_transport(request: pytest.FixtureRequest) -> str:
    """Return the name of the transport: the test's parameter, the marker's ``transport``, or ``auto``."""
    marker = request.node.get_closest_marker("abp")
    if marker is None:
        return "auto"
    return str(marker.kwargs.get("transport", "auto"))


@pytest.fixture
def abp_target(request: pytest.FixtureRequest, abp_transport: str, _abp_pages: Callable[[Path], str]) -> str:
    """Return the app's address: the marker's, ``--abp-target``, or the reference app if the test uses it.

    An HTML file beside the test is served, with its folder; a Python file is started as an MCP server; a ``.jsonl``
    file is a recording to replay. Override the fixture for an app whose address is known only at run time."""
    marker = request.node.get_closest_marker("abp")
    target = request.config.getoption("--abp-target")
    if marker is not None and marker.args:
        target = marker.args[0]

    if target:
        return _address_of(str(target), request, _abp_pages)
    if "abp_fixture_app" not in request.fixturenames:
        raise UsageError(
            f"{request.node.nodeid}: no app is named. Name it with @pytest.mark.abp('http://…'), --abp-target, your "
            "own fixture abp_target, or the fixture abp_fixture_app"
        )
    fixture: Fixture = request.getfixturevalue("abp_fixture_app")
    addresses = {"websocket": fixture.ws_url, "postmessage": fixture.embed_url, "webmcp": fixture.webmcp_url}
    return addresses.get(abp_transport, fixture.url)


def _address_of(target: str, request: pytest.FixtureRequest, serve_page: Callable[[Path], str]) -> str:
    file = request.path.parent / target
    is_file_name = file.suffix in (".html", ".htm", ".py", ".jsonl") and ":" not in target
    if not is_file_name:
        return target
    if not file.is_file():
        raise UsageError(f"{request.node.nodeid}: no such file beside the test: {file}")
    if file.suffix == ".py":
        return f"mcp+stdio:{shlex.join((sys.executable, str(file)))}"
    if file.suffix == ".jsonl":
        return f"replay:{file}"
    return serve_page(file)


@pytest.fixture(scope="session")
def _abp_pages() -> Iterator[Callable[[Path], str]]:
    with serve_pages() as address_of:
        yield address_of


@pytest.fixture(scope="session")
def abp_fixture_app() -> Iterator[Fixture]:
    """Serve the reference app, Workbench, on 127.0.0.1 for the test session: ``url``, ``ws_url``, ``embed_url``,
    ``webmcp_url``."""
    with serve_fixture_app() as fixture:
        yield fixture


@pytest.fixture(scope="session")
def abp_browser(pytestconfig: pytest.Config) -> Iterator[sync.Browser]:
    """Start one browser for all blocking sessions of the test session. Each has its own cookies and storage."""
    with sync.Browser(**browser_options(pytestconfig)) as browser:
        yield browser


@pytest.fixture
def abp_artifacts(tmp_path: Path) -> ArtifactStore:
    """Return the test's artifact store, blocking. Its files are in ``tmp_path / "artifacts"``."""
    return sync.open_store(str(tmp_path / "artifacts"))


@pytest.fixture
def abp_golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """Return the golden files in the folder ``golden`` beside the test: ``abp_golden.check(ref, "report.pdf")``."""
    from ._assertions import Golden

    update: Path | None = None
    if request.config.getoption("--abp-update-golden"):
        base = tmp_path_factory.getbasetemp()
        if hasattr(request.config, "workerinput"):
            base = base.parent  # xdist's workers share it
        update = base / "abp-golden"
    folder = request.path.parent / "golden"
    return Golden(folder, test=request.node.nodeid, update=update, output=_report_folder(request))


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def abp_app(
    request: pytest.FixtureRequest, abp_target: str, abp_transport: str, abp_artifacts: ArtifactStore, tmp_path: Path
) -> Iterator[BlockingSession]:
    """Open a blocking session (``transports.sync``) with the app, recorded in case the test fails.

    In a test that also uses ``page`` of pytest-playwright it drives that page, otherwise a page of :func:`abp_browser`.
    """
    options = _session_options(request, abp_target, abp_transport)
    shows_views = "abp_open_view" in request.fixturenames and is_server(abp_target)
    if starts_browser(abp_target, options, shows_views=shows_views):
        options["browser"] = request.getfixturevalue("abp_browser")
    report = _new_report(request, tmp_path)
    options = {"record": report.new_recording(), **options}
    with sync.connect(abp_target, transport=abp_transport, store=abp_artifacts, **options) as app:
        report.watch_page(app.transport, app._runner.run)
        if traces_here(options):
            report.start_trace(app.transport)
        try:
            yield app
        finally:
            report.discard_trace()


@pytest.fixture
def abp_app_async(
    request: pytest.FixtureRequest, abp_target: str, abp_transport: str, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Session]]:
    """Return a function that opens a session in the test's own event loop, of any plugin.

    Use it as ``async with abp_app_async() as app``. It takes the options of :func:`transports.connect`. In a test that
    also uses the asynchronous ``page`` of pytest-playwright-asyncio the session drives that page."""
    from ..session._connect import connect  # late: each run of pytest imports this module

    marked = _session_options(request, abp_target, abp_transport)
    report = _new_report(request, tmp_path)

    @contextlib.asynccontextmanager
    async def connected(**options: Any) -> AsyncIterator[Session]:
        defaults = {"store": tmp_path / "artifacts", "record": report.new_recording()}
        options = {**defaults, **marked, **options}
        shows_views = "abp_open_view_async" in request.fixturenames and is_server(abp_target)
        async with contextlib.AsyncExitStack() as stack:
            requested = browser_options(request.config)
            if requested and starts_browser(abp_target, options, shows_views=shows_views):
                options["browser"] = await stack.enter_async_context(browsers.Browser(**requested))
            app = await stack.enter_async_context(connect(abp_target, transport=abp_transport, **options))
            if traces_here(options):
                await stack.enter_async_context(report.tracing(app.transport))
            yield app

    return connected


@pytest.fixture
def abp_open_view(request: pytest.FixtureRequest, abp_app: BlockingSession) -> Iterator[Callable[..., BlockingView]]:
    """Return a function that calls a tool of ``abp_app``, an MCP server, and opens its view until the test ends.

    Use it as ``view = abp_open_view("board", {"n": 4}, theme="dark")``. It takes the arguments of
    :meth:`transports.Session.open_view` and returns a :class:`transports.sync.View`."""
    report = request.node.stash[_REPORT]
    with contextlib.ExitStack() as stack:

        def opened(capability: str, params: Mapping[str, object] | None = None, **options: Any) -> BlockingView:
            view = abp_app.open_view(capability, params, **options)
            report.watch_view(view.wrapped, view._runner.run)
            stack.enter_context(view)
            report.start_trace(view.transport)
            return view

        try:
            yield opened
        finally:
            report.discard_trace()


@pytest.fixture
def abp_open_view_async(
    request: pytest.FixtureRequest, abp_app_async: Callable[..., AbstractAsyncContextManager[Session]]
) -> Callable[..., AbstractAsyncContextManager[View]]:
    """Return a function that opens a session with an MCP server and the view of one of its tools, in the test's loop.

    Use it as ``async with abp_open_view_async("board", {"n": 4}, theme="dark") as view``. It takes the arguments of
    :meth:`transports.Session.open_view`."""
    report: FailureReport = request.node.stash[_REPORT]

    @contextlib.asynccontextmanager
    async def opened(
        capability: str, params: Mapping[str, object] | None = None, **options: Any
    ) -> AsyncIterator[View]:
        async with (
            abp_app_async() as app,
            report.keeping_view(app.open_view(capability, params, **options)) as view,
            report.tracing(view.transport),
        ):
            yield view

    return opened


def _session_options(request: pytest.FixtureRequest, target: str, transport: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    timeout = number_option(request.config, "timeout")
    if timeout is not None:
        options["timeout"] = timeout
    marker = request.node.get_closest_marker("abp")
    if marker is not None:
        options |= marker.kwargs
        options.pop("transport", None)

    drives_page = is_page(target) and transport in ("auto", "playwright", "webmcp")
    if drives_page and "page" in request.fixturenames:
        return {**options, "page": request.getfixturevalue("page")}

    options = {**evidence_option(request.config), **options}
    names_browser = not options.keys().isdisjoint({"browser", "profile", "storage_state"})
    connect_starts_browser = names_browser or target.lower().startswith("mcp")
    # The plugin itself shows only the browsers that it starts.
    if connect_starts_browser and "headless" in browser_options(request.config):
        return {"headless": False, **options}
    return options


def _new_report(request: pytest.FixtureRequest, tmp_path: Path) -> FailureReport:
    from ._failure_report import FailureReport

    report = FailureReport(
        _report_folder(request), artifacts=tmp_path / "artifacts", recordings=tmp_path / "recordings"
    )
    request.node.stash[_REPORT] = report
    return report


def _report_folder(request: pytest.FixtureRequest) -> Path:
    test = request.node.nodeid
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", test).strip("-.")
    parameters = test.partition("[")[2].removesuffix("]")
    are_plain = not parameters or re.fullmatch(r"[a-z0-9_]+([.-][a-z0-9_]+)*", parameters)
    if not are_plain or len(name) > 120:
        # Parameters may differ in replaced characters or in case alone, and long names in what is cut off.
        digest = hashlib.sha256(test.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name[-110:]}-{digest}"
    return output_folder(request.config) / request.config.stash[_RUN] / name


@contextlib.contextmanager
def serve_fixture_app() -> Iterator[Fixture]:
    from webapp_fixture import serve

    user = _LoopUser()
    SHARED.acquire(user)
    try:
        # Entered and left by hand, since it belongs to the other thread's event loop.
        context = serve()
        fixture = SHARED.run(context.__aenter__())
        try:
            yield fixture
        finally:
            SHARED.run(context.__aexit__(None, None, None))
    finally:
        SHARED.release(user)


@contextlib.contextmanager
def serve_pages() -> Iterator[Callable[[Path], str]]:
    """The file's folder is served on 127.0.0.1, by a thread, until the block ends."""
    servers: dict[Path, ThreadingHTTPServer] = {}

    def address_of(page: Path) -> str:
        folder = page.resolve().parent
        if folder not in servers:
            server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=str(folder)))
            # How often it looks whether it is shut down: every half a second by default, which each test would wait.
            poll_interval = 0.02
            threading.Thread(target=server.serve_forever, args=(poll_interval,), name="abp-pages", daemon=True).start()
            servers[folder] = server
        return f"http://127.0.0.1:{servers[folder].server_port}/{quote(page.name)}"

    try:
        yield address_of
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


class _QuietHandler(SimpleHTTPRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the browser closed the connection early
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _LoopUser:
    """A user keeps the blocking API's loop alive. It has nothing to close when the program ends."""

    def finish(self) -> None:
        pass
