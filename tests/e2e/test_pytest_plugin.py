"""The pytest plugin, as the tests of somebody else's app use it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.support.mcp_servers import FOLDER
from tests.testing.test_plugin import ran as ran_here
from transports import CapabilityError, MemoryTransport, connect as async_connect
from transports.playwright._find import find_browser
from transports.sync import connect
from transports.testing import Call
from transports.testing._failure_report import write_log
from transports.testing.plugin import serve_fixture_app
from webapp_fixture import digest

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
#: As in an environment of its own, where the entry point loads the plugin and nothing is known of ours.
WITH_PLAYWRIGHT = ("-p", "no:abp_transports", "-p", "transports.testing.plugin", "-p", "no:cacheprovider")
ARGS = (*WITH_PLAYWRIGHT, "-p", "no:playwright")


def ran(pytester: pytest.Pytester, *args: str, plugins: tuple[str, ...] = ARGS) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*plugins, *args, timeout=120)


@pytest.fixture(autouse=True)
def asyncio_is_set_up(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\naddopts = --strict-markers\n")


@pytest.mark.slow
@pytest.mark.requirement("R5-5b")
def test_plugin_opens_sessions_over_every_transport(pytester: pytest.Pytester) -> None:
    choice = find_browser()
    assert choice is not None
    pytester.makepyfile(
        f"""
        EXECUTABLE = {choice.path!r}"""
        """
        import pytest, pytest_asyncio
        from pathlib import Path
        from playwright.async_api import async_playwright

        @pytest.mark.abp_transports("playwright", "websocket", "postmessage", "webmcp")
        def test_table(abp_fixture_app, abp_app, abp_artifacts, abp_transport, tmp_path):
            ref = abp_app.call("data.csv", {"rows": [{"a": 1}]}).artifacts["file"]
            assert abp_app.transport.name == abp_transport
            assert [one.id for one in abp_artifacts.list()] == [ref.id]
            assert Path(ref.path).parent == tmp_path / "artifacts"

        @pytest.mark.asyncio
        async def test_async(abp_fixture_app, abp_app_async):
            async with abp_app_async() as app:
                assert (await app.call("file.list")).data["files"]

        @pytest_asyncio.fixture
        async def page():  # as that of pytest-playwright-asyncio
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
                yield await browser.new_page()
                await browser.close()

        @pytest.mark.asyncio
        async def test_async_page(abp_fixture_app, page, abp_app_async):
            async with abp_app_async() as app:
                await app.call("job.run", {"steps": 1, "delay": 1, "label": "seen"})
                assert page.url == abp_fixture_app.url
                assert "job.run" in await page.locator("#log").inner_text()
    """
    )
    result = ran(pytester, "-v")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*test_table[[]websocket[]] PASSED*"])
    assert not (pytester.path / "abp-results").exists()


@pytest.mark.slow
def test_plugin_target_comes_from_marker_option_or_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.fixture(autouse=True)
        def running(abp_fixture_app):
            return abp_fixture_app

        def test_option(abp_app, abp_transport):
            assert abp_app.transport.name == "websocket"
            assert abp_transport in ("auto", "websocket")

        class TestOwn:
            @pytest.fixture
            def abp_target(self, running):
                return running.strict_url

            def test_fixture(self, abp_app):
                assert abp_app.transport.url.endswith("/strict")

        @pytest.mark.abp("ws://127.0.0.1:1/nobody")
        def test_marker(abp_app): ...
    """)
    with serve_fixture_app() as app:
        target = f"--abp-target={app.ws_url}"
        result = ran(pytester, target, "-v")
        over_both = ran(pytester, target, "--abp-transport=websocket", "--abp-transport=auto", "-vk", "test_option")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*127.0.0.1:1*"])
    over_both.assert_outcomes(passed=2, deselected=4)
    over_both.stdout.fnmatch_lines(["*test_option[[]websocket[]] PASSED*", "*test_option[[]auto[]] PASSED*"])


GENERATED = {"bytes": 2000, "as": "url", "auth": "bearer"}


def test_failure_keeps_recording_and_artifacts(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile(f"""
        import asyncio
        import pytest

        pytestmark = pytest.mark.abp_transports("websocket")

        def test_blocking(abp_fixture_app, abp_app):
            abp_app.call("file.generate", {GENERATED})
            assert False, "on purpose"

        def test_skipped(abp_fixture_app, abp_app_async):
            async def main():
                async with abp_app_async():
                    pytest.skip("no reason to keep anything")
            asyncio.run(main())

        def test_fine(abp_fixture_app, abp_app):
            abp_app.call("file.list")

        def test_several(abp_fixture_app, abp_app_async, tmp_path):
            async def main():
                for options in ({{}}, {{}}, {{"record": tmp_path / "own.jsonl"}}):
                    async with abp_app_async(**options) as app:
                        await app.call("file.list")
            asyncio.run(main())
            assert (tmp_path / "own.jsonl").is_file()
            assert False, "on purpose"
    """)
    result = ran_here(pytester, "--abp-output=kept")
    result.assert_outcomes(passed=1, failed=2, skipped=1)
    kept = pytester.path / "kept"
    result.stdout.fnmatch_lines([f"kept in {kept}/*test_blocking-websocket: session.jsonl, session.txt, artifacts"])
    several = "session.jsonl, session.txt, session-2.jsonl, session-2.txt, artifacts"
    result.stdout.fnmatch_lines([f"kept in *test_several-websocket: {several}"])
    (run,) = kept.iterdir()
    blocking, _ = folders = [*run.glob("*test_blocking*"), *run.glob("*test_several*")]
    assert {*run.iterdir()} == {*folders}
    log = (blocking / "session.txt").read_text(encoding="utf-8")
    asked = re.findall(r"→ ask \d+ request (\S+)", log)
    assert asked[0] == "initialize" and "capabilities/call" in asked and " capabilities/call-result " in log
    (answer,) = re.findall(r" capabilities/call-result .*generated.*", log)
    assert '"auth": {"type": "bearer", "header": "<redacted>"}' in answer
    with connect(f"replay:{blocking / 'session.jsonl'}", store=str(tmp_path)) as app:
        again = app.call("file.generate", GENERATED)
    assert again.artifacts["file"].sha256 == digest(2000, 0)
    assert (blocking / "artifacts" / "generated.bin").stat().st_size == 2000


@pytest.mark.slow
def test_failure_in_page_keeps_its_console_and_trace(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_blocking(abp_fixture_app, abp_app):
            abp_app.call("file.list")
            abp_app._runner.run(abp_app.transport.wrapped.page.evaluate("console.warn('mind the gap')"))
            assert False, "on purpose"

        @pytest.mark.asyncio
        async def test_async(abp_fixture_app, abp_app_async):
            async with abp_app_async() as app:
                await app.call("file.list")
                await app.transport.wrapped.page.evaluate("console.warn('mind the gap')")
                assert False, "on purpose"
    """)
    result = ran(pytester, "--abp-output=kept")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["kept in *test_blocking: session.jsonl, session.txt, page.txt*, trace.zip*, artifacts"]
    )
    folders = [*pytester.path.glob("kept/*/*")]
    assert len(folders) == 2
    for folder in folders:
        with zipfile.ZipFile(folder / "trace.zip") as trace:
            assert "trace.trace" in trace.namelist()
        assert "console.warning: mind the gap\n" in (folder / "page.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_pytest_playwright_pages_and_async_tests_run_together(pytester: pytest.Pytester) -> None:
    """pytest-playwright leaves an event loop in this thread that asyncio takes for running."""
    pytester.makepyfile("""
        import asyncio, time
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        def test_both(abp_fixture_app, page, abp_app):
            abp_app.call("job.run", {"steps": 1, "delay": 1, "label": "seen"})
            assert page.url == abp_fixture_app.url
            assert "job.run" in page.locator("#log").inner_text()

        async def listed(connected):
            async with connected as app:
                assert (await app.call("file.list")).data["files"]

        @pytest.mark.asyncio
        async def test_asyncio(abp_fixture_app, abp_app_async):
            async with abp_app_async() as app:
                started = time.monotonic()
                await app.transport.wrapped.page.mouse.move(1, 1)
                assert time.monotonic() - started >= 0.05  # --abp-slowmo

        @pytest.mark.abp_transports("websocket")
        @pytest.mark.anyio
        async def test_anyio(abp_fixture_app, abp_app_async):
            await listed(abp_app_async())

        @pytest.mark.abp_transports("websocket")
        def test_no_plugin(abp_fixture_app, abp_app_async):
            asyncio.run(listed(abp_app_async()))

        test_both_again = test_both

        @pytest.mark.asyncio
        async def test_refused(abp_fixture_app, page, abp_app_async): ...
    """)
    result = ran(pytester, "--abp-slowmo=50", plugins=WITH_PLAYWRIGHT)
    result.assert_outcomes(passed=5, errors=1)
    result.stdout.fnmatch_lines(["*test_refused*: `page` of pytest-playwright blocks, so a test with an event loop*"])


PAGE = """
    def test_it(page):
        page.goto("data:text/html,<h1>hello")
        assert page.locator("h1").inner_text() == "hello"
"""


@pytest.fixture
def no_browser_of_playwright(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder in which Playwright looks for its browsers."""
    folder = pytester.mkdir("browsers")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "plugins", [WITH_PLAYWRIGHT, ("-p", "pytest_playwright.pytest_playwright", *ARGS)], ids=["before", "after"]
)
@pytest.mark.usefixtures("no_browser_of_playwright")
def test_pytest_playwright_starts_browser_found_by_doctor(pytester: pytest.Pytester, plugins: tuple[str, ...]) -> None:
    """In whatever order the two plugins are loaded."""
    pytester.makepyfile(PAGE)
    result = ran(pytester, plugins=plugins)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*'launch_browser'*")  # pytest warns of fixtures that it will no longer support


LAUNCH_ARGS = """
    import pytest

    @pytest.fixture(scope="session")
    def browser_type_launch_args(browser_type_launch_args):
        return {{**browser_type_launch_args, {}}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conftest", "args", "message"),
    [
        (LAUNCH_ARGS.format('"executable_path": "/nowhere/mine"'), (), "*/nowhere/mine*"),
        (LAUNCH_ARGS.format('"channel": "chrome-canary"'), (), "*'chrome-canary'*"),
        ("", ("--browser=firefox",), "*Executable doesn't exist at */browsers/firefox-*"),
        ("", (), "*Executable doesn't exist at */browsers/chromium_headless_shell-*"),
    ],
    ids=["executable_path", "channel", "--browser", "own"],
)
def test_pytest_playwright_starts_browser_named_by_user_or_its_own(
    pytester: pytest.Pytester, no_browser_of_playwright: Path, conftest: str, args: tuple[str, ...], message: str
) -> None:
    """None of them is installed, so that Playwright's error shows which it is."""
    if not conftest and not args:
        with sync_playwright() as playwright:
            version = Path(playwright.chromium.executable_path).relative_to(no_browser_of_playwright).parts[0]
        # A folder without the file.
        (no_browser_of_playwright / version.replace("-", "_headless_shell-")).mkdir()
    pytester.makeconftest(conftest)
    pytester.makepyfile(PAGE)
    result = ran(pytester, *args, plugins=WITH_PLAYWRIGHT)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


@pytest.mark.slow
def test_reopening_page_under_abp_app_says_to_drop_page_goto(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(abp_fixture_app, page, abp_app):
            page.goto(abp_fixture_app.url)
            abp_app.call("export.html", {"markdown": "# Hi"})
    """)
    result = ran(pytester, "-W", "error::pytest.PytestRemovedIn10Warning:transports", plugins=WITH_PLAYWRIGHT)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*abp_app has opened the app in page before the test: leave out page.goto*"])
    result.stdout.no_fnmatch_line("*transports*instance method*")


@pytest.mark.slow
def test_documentation_front_page_test_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (block,) = (
        text for text in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "(page)" in text
    )
    monkeypatch.setenv("ABP_OUTPUT_DIR", str(tmp_path / "out"))
    with serve_fixture_app() as app:
        pytester.makepyfile(block.replace("http://127.0.0.1:8000/", app.url))
        ran(pytester, plugins=WITH_PLAYWRIGHT).assert_outcomes(passed=1)
    assert [path for path in (tmp_path / "out").iterdir() if path.suffix == ".pdf"]


@pytest.mark.slow
def test_unused_pytest_plugin_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_plain():
            ours = {"transports.session._session", "transports.sync._session"}
            heavy = {"playwright", "aiohttp", "pydantic", "PIL", *ours}
            assert not heavy & set(sys.modules)
    """)
    ran(pytester, "-p", "no:asyncio").assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "passed"), [("minimal_app", 2), ("mcp_app", 4)])
def test_an_example_passes_its_tests(name: str, passed: int) -> None:
    """In place, so that its golden files count."""
    folder = ROOT / "examples" / name
    args = ["-o", "asyncio_default_fixture_loop_scope=function", "-q", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *ARGS, *args], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and f"{passed} passed" in done.stdout, done.stdout


async def test_plugin_log_is_short_and_without_secrets(tmp_path: Path) -> None:
    answered = {
        "url": "https://user:pw@example.org/a?token=abc",
        "note": "Authorization: Bearer abcdef",
        "apiKey": "abc",
        "content": {"content": b"12345", "mimeType": "application/x-secret"},
        "text": "x" * 5000,
        "many": list(range(500)),
    }

    async def answer(params: Mapping[str, object], call: Call) -> object:
        return answered

    recording, log = tmp_path / "session.jsonl", tmp_path / "session.txt"
    transport = MemoryTransport({"answer": answer})
    async with async_connect("memory:", transport=transport, store="memory:", record=recording) as app:
        await app.call("answer")
        with pytest.raises(CapabilityError):
            await app.call("nothing")
    with recording.open("a", encoding="utf-8") as file:
        file.write('{"does": "event", "ty')  # a program that was killed in the middle of a line
    write_log(recording, log)
    lines = log.read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if '"apiKey"' in line]
    assert re.match(r" +\d+\.\d{3} ← answer \d+ capabilities/call-result \{", line)
    assert '"apiKey": "<redacted>"' in line and "characters)" in line
    assert "pw@" not in line and "abc" not in line and "12345" not in line
    assert len(lines) > 6 and max(map(len, lines)) < 1100
    assert any("UNKNOWN_CAPABILITY" in line for line in lines)


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server_beside_the_test(pytester: pytest.Pytester) -> None:
    for name, of in (("server.py", "views.py"), ("view.html", "view.html")):
        shutil.copy(FOLDER / of, pytester.path / name)


def kept(pytester: pytest.Pytester, test: str) -> Path:
    (folder,) = (pytester.path / "abp-results").glob(f"*/*{test}")
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("server_beside_the_test")
def test_plugin_opens_views_of_server_and_recording(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_a="""
        import pytest
        from transports import sync

        pytestmark = pytest.mark.abp("server.py", record="board.jsonl")

        def test_blocking(abp_open_view, abp_app, abp_golden, abp_artifacts):
            view = abp_open_view("board", {"n": 4}, theme="dark")
            assert isinstance(view, sync.View) and view.result.data["n"] == 4
            assert view.call("echo", {"text": "a"}).data == {"text": "a"}
            handed = view.call("hands")
            file = handed.artifact()
            assert file.filename == "three.bin" and abp_artifacts.get(file) == bytes([1, 2, 3])
            assert view.frame.get_by_role("heading").inner_text() == "A view"
            assert [one.inner_text() for one in view.frame.locator("h1").all()] == ["A view"]
            assert view.frame.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
            other = abp_open_view("plain")
            assert dict(other.capabilities) == {} and view.call("echo", {"text": "b"}).data == {"text": "b"}
            view.update(theme="light")
            view.send_input({"n": 5})
            assert (view.requests[-1].kind, view.model_context) == ("download-file", None)
            assert (view.violations, view.files) == ((), ()) and "evil" in view.warnings[0]
    """,
        test_b="""
        import pytest
        from transports.errors import UsageError

        pytestmark = pytest.mark.abp("board.jsonl")

        @pytest.mark.asyncio
        async def test_async(abp_open_view_async):
            async with abp_open_view_async("board", {"n": 4}) as view:
                assert (await view.call("echo", {"text": "a"})).data == {"text": "a"}
                assert await view.frame.get_by_role("heading").inner_text() == "A view"

        def test_blocking(abp_open_view):
            assert abp_open_view("board", {"n": 4}).result.data["n"] == 4
            with pytest.raises(UsageError, match="has no view"):
                abp_open_view("model_only")
    """,
    )
    (pytester.path / "test_b.py").rename(pytester.path / "test_b.py.later")
    ran(pytester).assert_outcomes(passed=1)
    (pytester.path / "test_b.py.later").rename(pytester.path / "test_b.py")
    (pytester.path / "server.py").unlink()  # the recording needs none
    ran(pytester, "test_b.py").assert_outcomes(passed=2)
    assert not (pytester.path / "abp-results").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("server_beside_the_test")
def test_failure_keeps_view_requests_and_screenshot(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        pytestmark = pytest.mark.abp("server.py")
        LINK = {"url": "https://example.com/?api_key=rosebud"}

        def test_blocking(abp_open_view):
            view = abp_open_view("board")
            view.frame.evaluate("(link) => rpc('ui/open-link', link)", LINK)
            foreign = "Object.assign(document.createElement('script'), {src: 'https://x.example/'})"
            view.frame.evaluate(f"document.head.append({foreign})")
            abp_open_view("plain")
            assert False, "on purpose"

        @pytest.mark.asyncio
        async def test_async(abp_open_view_async):
            async with abp_open_view_async("board") as view:
                await view.frame.evaluate("(link) => rpc('ui/open-link', link)", LINK)
                assert False, "on purpose"

        @pytest.mark.asyncio
        async def test_blank(abp_open_view_async):
            async with abp_open_view_async("fails", timeout=8):
                pass

        @pytest.mark.asyncio
        async def test_skipped(abp_open_view_async):
            async with abp_open_view_async("plain"):
                pytest.skip("on purpose")
    """)
    result = ran(pytester)
    result.assert_outcomes(failed=3, skipped=1)
    result.stdout.fnmatch_lines(["kept in *: session.jsonl, session.txt, *view.json, view.png*"])
    result.stdout.fnmatch_lines_random(["view: *https://x.example/*", "view: *TypeError*"])
    for test in ("test_blocking", "test_async"):
        folder = kept(pytester, test)
        seen = json.loads((folder / "view.json").read_text())
        (link,) = (one for one in seen["requests"] if one["kind"] == "open-link")
        assert link["params"]["url"].startswith("https://example.com/") and "rosebud" not in json.dumps(seen)
        assert (folder / "view.png").read_bytes().startswith(b"\x89PNG") and (folder / "trace.zip").stat().st_size
        assert "resources/read" in (folder / "session.txt").read_text()
    assert seen["violations"] == []
    assert {"view-2.json", "view-2.png", "trace-2.zip"} <= {file.name for file in kept(pytester, "blocking").iterdir()}
    blank = json.loads((kept(pytester, "blank") / "view.json").read_text())
    assert "TypeError" in blank["warnings"][0] and not (kept(pytester, "blank") / "view.png").exists()
    assert len([*(pytester.path / "abp-results").glob("*/*")]) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("server_beside_the_test")
def test_blank_view_fails_at_line_of_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_lines="""
        import pytest
        from transports.sync import expect

        pytestmark = pytest.mark.abp("server.py")

        def test_fixture(abp_open_view):
            abp_open_view("fails", timeout=8)

        def test_with(abp_app):
            with abp_app.open_view("fails", timeout=8):
                pass

        def test_click(abp_open_view):
            abp_open_view("plain").frame.get_by_role("button", name="missing").click(timeout=100)

        def test_expect(abp_open_view):
            expect(abp_open_view("plain").frame.get_by_role("heading")).to_have_text("Missing", timeout=100)

        @pytest.mark.asyncio
        async def test_async_fixture(abp_open_view_async):
            async with abp_open_view_async("fails", timeout=8):
                pass
    """
    )
    result = ran(pytester)
    result.assert_outcomes(failed=5)
    places = [line for line in result.outlines if re.match(r"\S+\.py:\d+: ", line)]
    assert [place.partition(":")[0] for place in places] == ["test_lines.py"] * 5, places
    assert sum("stayed blank" in line for line in result.outlines) >= 3
