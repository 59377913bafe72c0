"""The pytest plugin without a browser and an app: its options, where reports go, golden files."""

from __future__ import annotations

import gc
import io
import os
from pathlib import Path

import pytest
from PIL import Image

from transports import open_store
from transports.errors import UsageError
from transports.testing import Golden, assert_schema, assert_size
from transports.testing._failure_report import FailureReport
from transports.testing.plugin import new_run_name, remove_older_runs
from webapp_fixture.pdf import make_pdf

pytest_plugins = ("pytester",)

ARGS = ("-p", "no:abp_transports", "-p", "transports.testing.plugin", "-p", "no:playwright", "-p", "no:cacheprovider")
ROOT = Path(__file__).parents[2]
#: A line of the kit's in a traceback, which would hide the test's own.
KIT = "*/transports/*.py:[0-9]*"
#: A number that no process has.
NOBODY = 2**31 - 1


def ran(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    gc.disable()  # CPython 3.11 breaks off compiling a module if garbage of earlier tests is collected meanwhile
    try:
        return pytester.runpytest_inprocess(*ARGS, "-p", "no:asyncio", *args)
    finally:
        gc.enable()


# --- options ----------------------------------------------------------------------------------------------------------

#: Replaces what opens sessions and browsers, and shows the options that each would get.
SHOW_OPTIONS = """
    import contextlib, types
    import pytest, transports.sync

    @pytest.fixture(scope="session", autouse=True)
    def shown():
        seen = []

        @contextlib.contextmanager
        def taking(*target, **options):
            seen.append({name: value for name, value in options.items() if name not in ("record", "store")})
            yield types.SimpleNamespace(transport=None, _runner=types.SimpleNamespace(run=None))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(transports.sync, "connect", taking)
            patched.setattr(transports.sync, "Browser", taking)
            yield seen
"""
EVIDENCE = "--abp-evidence=trace=on-failure,har"
USED = """
    import pytest

    def test_it(shown, abp_app):
        browser, app = shown
        assert browser == {"slow_mo": 250.0, "headless": False}
        assert app.pop("browser") and app.pop("evidence").kinds(failed=False) == {"har"}
        assert app == {"transport": "auto", "timeout": 7.5}

    @pytest.mark.abp("http://127.0.0.1:1/", timeout=3, profile="mine")
    def test_marker(shown, abp_app):
        assert shown[-1].pop("evidence").kinds() == {"trace", "har"}
        assert shown[-1] == {"transport": "auto", "timeout": 3, "profile": "mine", "headless": False}
"""


@pytest.mark.parametrize(
    ("ini", "args"),
    [
        (f"abp_timeout = 7.5\nabp_slowmo = 250\nabp_headed = true\nabp_{EVIDENCE[6:]}\n", ()),
        ("abp_timeout = 1\nabp_slowmo = 1\n", ("--abp-timeout=7.5", "--abp-slowmo=250", "--abp-headed", EVIDENCE)),
    ],
)
def test_plugin_takes_timeout_headed_and_slowmo_as_option_or_ini(
    pytester: pytest.Pytester, ini: str, args: tuple[str, ...]
) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(SHOW_OPTIONS)
    pytester.makepyfile(USED)
    ran(pytester, "--abp-target=http://127.0.0.1:1/", *args).assert_outcomes(passed=2)


@pytest.mark.parametrize(("arg", "value"), [("timeout", "soon"), ("slowmo", "-1"), ("keep-runs", "0")])
def test_plugin_rejects_non_positive_number(pytester: pytest.Pytester, arg: str, value: str) -> None:
    result = ran(pytester, f"--abp-{arg}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*abp_{arg.replace('-', '_')} must be a number above 0, not '{value}'*"])


def test_missing_target_or_marker_file_is_reported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.abp("pages/app.html")
        def test_it(abp_app): ...

        def test_nothing(abp_app): ...

        @pytest.mark.abp("gopher://nowhere/")
        def test_unknown(abp_app): ...
    """)
    result = ran(pytester)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["nothing was kept: *"])
    assert not (pytester.path / "abp-results").exists()
    result.stdout.fnmatch_lines([f"*::test_it: no such file beside the test: {pytester.path}/pages/app.html *"])
    result.stdout.fnmatch_lines(["*no app is named. Name it with @pytest.mark.abp(*"])
    result.stdout.no_fnmatch_line(KIT)


# --- reports ----------------------------------------------------------------------------------------------------------


def results(pytester: pytest.Pytester) -> list[str]:
    return sorted(path.name for path in (pytester.path / "abp-results").iterdir())


@pytest.mark.load
def test_each_run_gets_a_folder_and_only_last_is_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(abp_golden): abp_golden.check(b'x', 'x.txt')")
    older = [f"202601{day:02}-120000-{NOBODY}" for day in range(1, 4)]
    running, other = f"20260101-110000-{os.getppid()}", "my-own-folder"
    for name in (*older, running, other):
        (pytester.path / "abp-results" / name).mkdir(parents=True)
    pytester.makepyfile(test_fine="def test_fine(): ...")
    ran(pytester, "test_fine.py").assert_outcomes(passed=1)
    assert len(results(pytester)) == 5  # a run that leaves nothing takes nothing away
    ran(pytester, "--abp-keep-runs=3").assert_outcomes(passed=1, failed=1)
    (new,) = set(results(pytester)) - {*older, running, other}
    assert set(results(pytester)) == {new, *older[1:], running, other}
    ran(pytester).assert_outcomes(passed=1, failed=1)
    left = set(results(pytester)) - {new, running, other}
    assert len(left) <= 1 and not left & set(older)


def test_output_that_cannot_be_written_fails_no_other_test(pytester: pytest.Pytester) -> None:
    pytester.makefile("", **{"abp-results": "a file in the place of the folder"})
    pytester.makepyfile("""
        import pytest
        from transports import MemoryTransport

        async def hello(params, call):
            return "hello"

        @pytest.fixture
        def abp_target():
            return "memory:"

        @pytest.fixture
        def abp_transport():
            return MemoryTransport({"hello": hello})

        def test_app(abp_app):
            assert abp_app.call("hello").data == "bye"

        def test_golden(abp_golden):
            abp_golden.check(b"x", "x.txt")

        def test_fine():
            pass
    """)
    result = ran(pytester)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*not kept in *; name another folder with --abp-output"])
    result.stdout.fnmatch_lines(["*x.txt cannot be compared: *; a result that differs is kept in *--abp-output*"])
    unreadable = ran(pytester, "-k", "fine", "--abp-output", "too-long-" * 40)
    unreadable.assert_outcomes(passed=1, deselected=2)
    unreadable.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert unreadable.ret == 0


@pytest.mark.slow
def test_xdist_workers_share_run_folder(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(
        "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_it(abp_golden, n): abp_golden.check(b'x', 'x.txt')"
    )
    ran(pytester, "-n", "2").assert_outcomes(failed=2)
    (run,) = results(pytester)
    assert len([*(pytester.path / "abp-results" / run).iterdir()]) == 2


def test_tests_with_similar_names_have_reports_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("text", ["a/b", "a:b", "a-b", "A-b", "x" * 200, "y" + "x" * 199])
        def test_it(abp_golden, text):
            abp_golden.check(text.encode(), "text.txt")
    """)
    ran(pytester).assert_outcomes(failed=6)
    (run,) = results(pytester)
    texts = [file.read_text() for file in (pytester.path / "abp-results" / run).glob("*/text.result.txt")]
    assert len({*texts}) == 6
    folders = {folder.name.casefold() for folder in (pytester.path / "abp-results" / run).iterdir()}
    assert len(folders) == 6


def test_only_run_folders_are_removed(tmp_path: Path) -> None:
    name = new_run_name()
    remove_older_runs(tmp_path / "nowhere", name, 1)
    (tmp_path / f"20260101-120000-{NOBODY}").write_text("a file of somebody's")
    (tmp_path / name).mkdir()
    remove_older_runs(tmp_path, name, 1)
    assert len([*tmp_path.iterdir()]) == 2


# --- golden files -----------------------------------------------------------------------------------------------------


def test_golden_failure_names_result_copy_or_missing_file(pytester: pytest.Pytester) -> None:
    pytester.mkdir("golden").joinpath("different.txt").write_text("other")
    pytester.makepyfile("""
        from pathlib import Path

        import pytest

        from transports import UsageError
        from transports.sync import open_store

        def test_new(abp_golden):
            abp_golden.check(b"result", "new.txt")

        def test_different(abp_golden):
            abp_golden.check(b"result", "different.txt")

        def test_no_file(abp_golden):
            ref = open_store("memory:").put_bytes(b"result", mime_type="text/plain", filename="notes.txt")
            abp_golden.check(ref, "different.txt")

        def test_gone(abp_golden):
            abp_golden.check(Path("gone.txt"), "different.txt")

        @pytest.mark.parametrize("name", ["../a.txt", "a\\0.txt", "a" * 300], ids=["above", "zero", "long"])
        def test_name(abp_golden, name):
            with pytest.raises(UsageError, match="is not a plain file name"):
                abp_golden.check(b"result", name)
    """)
    result = ran(pytester)
    result.assert_outcomes(failed=4, passed=3)
    result.stdout.no_fnmatch_line(KIT)
    (run,) = (pytester.path / "abp-results").iterdir()
    (new,), (different,) = run.glob("*test_new/new.result.txt"), run.glob("*test_different/different.result.txt")
    assert new.read_bytes() == different.read_bytes() == b"result"
    result.stdout.fnmatch_lines_random(
        [
            f"*no golden file */new.txt; look at the result, {new}; if it is right, run pytest with --abp-*",
            "*the result differs from */different.txt:",
            "*+result",
            f"*The result is {different}; --abp-update-golden accepts it",
            "*notes.txt (artifact://*) has no file here; use a store in a folder, as abp_artifacts is*",
            "*gone.txt cannot be compared: No such file or directory*",
        ]
    )


def test_conflicting_updates_of_golden_file_are_rejected(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("golden")
    folder.joinpath("own.txt").write_text("older")
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_one_name(abp_golden, n):
            abp_golden.check(b"result %d" % n, "one.txt")

        @pytest.mark.parametrize("n", [1, 2])
        def test_one_result(abp_golden, n):
            abp_golden.check(b"same", "same.txt")

        def test_own(abp_golden):
            abp_golden.check(b"first", "own.txt")
            abp_golden.check(b"second", "own.txt")
    """)
    result = ran(pytester, "--abp-update-golden")
    result.assert_outcomes(passed=4, failed=1)
    case = "test_*.py::test_one_name[[]{}]"
    result.stdout.fnmatch_lines(
        [f"*UsageError: {case.format(1)} and {case.format(2)} have different results for one golden file*"]
    )
    assert (folder / "one.txt").read_text() == "result 1"
    assert (folder / "same.txt").read_text() == "same" and (folder / "own.txt").read_text() == "second"


def test_trace_hint_is_a_command_that_shows_it(tmp_path: Path) -> None:
    folder = tmp_path / "a test"
    folder.mkdir()
    (folder / "trace.zip").write_bytes(b"PK")
    said = FailureReport(folder, artifacts=tmp_path / "none", recordings=tmp_path / "none").write()
    assert said.endswith(f": trace.zip (see it with: playwright show-trace '{folder}/trace.zip')")


# --- comparisons ------------------------------------------------------------------------------------------------------


def golden_file(folder: Path, name: str, content: bytes) -> Golden:
    golden = Golden(folder / "golden", test="it", update=None, output=folder / "out")
    golden.folder.mkdir()
    (golden.folder / name).write_bytes(content)
    return golden


def test_golden_image_allows_limited_pixel_difference(tmp_path: Path) -> None:
    def picture(different: int) -> bytes:
        image = Image.new("RGB", (20, 10), (10, 10, 10))
        for x in range(different):
            image.putpixel((x, 0), (19, 10, 10))
        image.save(out := io.BytesIO(), "PNG")
        return out.getvalue()

    golden = golden_file(tmp_path, "a.png", picture(0))
    golden.check(picture(4), "a.png", differing=0.02)
    golden.check(picture(4), "a.png", tolerance=9)
    with pytest.raises(AssertionError, match=r"5 of 200 pixels differ .*tolerance 0, 4 pixels may differ by more"):
        golden.check(picture(5), "a.png", differing=0.02)
    with pytest.raises(AssertionError, match=r"1 of 200 pixels differ from .*a.png \(tolerance 8\)"):
        golden.check(picture(1), "a.png", tolerance=8)
    with Image.open(tmp_path / "out" / "a.difference.png") as shown:
        assert shown.getpixel((0, 0)) == (255, 0, 80) and shown.getpixel((1, 0)) == (194, 194, 194)


def _encoded(*frames: Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=len(frames) > 1, append_images=frames[1:])
    return out.getvalue()


def _filled(mode: str, value: int | str) -> Image.Image:
    return Image.new(mode, (4, 4), value)


_PNG = _encoded(_filled("RGB", "red"))
_MOVING = _encoded(_filled("RGB", "red"), _filled("RGB", "blue"), kind="GIF")


@pytest.mark.parametrize(
    ("expected", "actual", "message"),
    [
        (_encoded(_filled("I;16", 300)), _encoded(_filled("I;16", 60_000)), "16 of 16 pixels differ"),
        (_encoded(_filled("I", 300), kind="TIFF"), _encoded(_filled("I", 301), kind="TIFF"), "16 of 16 pixels differ"),
        (
            _MOVING,
            _encoded(_filled("RGB", "red"), _filled("RGB", "green"), kind="GIF"),
            "frame 2: 16 of 16 pixels differ",
        ),
        (_encoded(_filled("RGBA", "#0000")), _encoded(_filled("RGBA", "black")), "16 of 16 pixels differ"),
        (_MOVING, _encoded(_filled("RGB", "red"), kind="GIF"), "the image has 1 frames"),
        (_PNG, _PNG[:50], "the result is not a readable image"),
        (_PNG, b"<html>", "the result is not a readable image"),
        (_PNG[:50], _PNG, "which is not a readable image"),
        (make_pdf("Hello", "A title"), b"<html>", "the result is not a readable PDF"),
        (b"%PDF-1.4", make_pdf("Hello", "A title"), "which is not a readable PDF"),
    ],
    ids=["grey", "numbers", "frame", "transparent", "frames", "cut", "html", "golden", "pdf", "golden-pdf"],
)
def test_golden_names_differences_of_deep_moving_and_broken_files(
    tmp_path: Path, expected: bytes, actual: bytes, message: str
) -> None:
    golden = golden_file(tmp_path, "a.bin", expected)
    golden.check(expected, "a.bin")
    with pytest.raises(AssertionError, match=f"{message}(?s:.*)The result is"):
        golden.check(actual, "a.bin")
    assert (tmp_path / "out" / "a.result.bin").read_bytes() == actual


def test_golden_compares_pdfs_by_text_and_texts_by_line(tmp_path: Path) -> None:
    golden = golden_file(tmp_path, "a.pdf", make_pdf("Hello", "A title"))
    golden.check(make_pdf("Hello", "Another title"), "a.pdf")
    with pytest.raises(AssertionError, match=r"page 1 reads 'Goodbye', in .*a\.pdf 'Hello'"):
        golden.check(make_pdf("Goodbye", "A title"), "a.pdf")
    (golden.folder / "a.txt").write_text("same\n")
    with pytest.raises(AssertionError, match=r"(?s)the result differs from .*a\.txt:.*\n-same\n\+some\n"):
        golden.check(b"some\n", "a.txt")
    with pytest.raises(UsageError, match=r"actual must be .* not str"):
        golden.check("same", "a.txt")  # type: ignore[arg-type]


async def test_assert_size_and_assert_schema_check_values() -> None:
    ref = await open_store("memory:").put_bytes(bytes(600), filename="a.bin")
    assert_size(ref, 600, at_least=600, at_most=600)
    for bounds in ({"exactly": 599}, {"at_least": 601}, {"at_most": 599}):
        with pytest.raises(AssertionError, match=r"^a\.bin has 600 bytes, not (exactly 599|at least)"):
            assert_size(ref, **bounds)
    assert_schema({"file": b"x"}, {"required": ["file"], "properties": {"file": {"type": "object"}}})
    with pytest.raises(AssertionError, match="missing"):
        assert_schema({"file": b"x"}, {"required": ["missing"]})
