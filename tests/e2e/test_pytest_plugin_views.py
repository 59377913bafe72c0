"""The pytest plugin for tests of views, as the author of an MCP server uses it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.test_pytest_plugin import ROOT, ran
from tests.support.mcp_servers import FOLDER

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def server_beside_the_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\naddopts = --strict-markers\n")
    for name, of in (("server.py", "views.py"), ("view.html", "view.html")):
        shutil.copy(FOLDER / of, pytester.path / name)


def kept(pytester: pytest.Pytester, test: str) -> Path:
    (folder,) = (pytester.path / "abp-results").glob(f"*/*{test}")
    return folder


@pytest.mark.slow
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
