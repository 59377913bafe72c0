"""What an app does beside answering: nothing hangs, nothing is lost (docs/side-effects.md)."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from aiohttp import web

from tests.e2e.conftest import Connect
from tests.e2e.test_late_files import UNOPENED
from tests.support.eventually import eventually
from tests.support.pages import app_page, serve_answers, serve_page
from tests.support.pdf import image_of, pages_of, text_of
from tests.support.slow import slow_but
from transports import (
    Browser,
    CapabilityError,
    Effect,
    LocalStore,
    PlaywrightTransport,
    PostMessageTransport,
    Result,
    Session,
    UsageError,
    connect,
)
from transports.errors import ContextLost, PageCrashed
from transports.playwright._page_transport import PageTransport
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Step = str | dict[str, Any]


def steps(*do: Step) -> list[dict[str, Any]]:
    return [{"kind": step} if isinstance(step, str) else step for step in do]


async def ui(app: Session, *do: Step, timeout: float = 10, **more: object) -> Result:
    """One call that does all this, step by step."""
    return await app.call("fault.native_ui", {"do": steps(*do), **more}, timeout=timeout)


@asynccontextmanager
async def announced(app: Session, count: int) -> AsyncIterator[list[Effect]]:
    """Wait at the end of the block until ``count`` effects have been announced as events."""
    effects: list[Effect] = []
    async with app.events() as events, asyncio.timeout(30):
        yield effects
        async for event in events:
            if isinstance(event, Effect):
                effects.append(event)
            if len(effects) == count:
                return


def got(result: Result) -> Any:
    """What the app got back from its steps."""
    assert isinstance(result.data, dict)
    return result.data["got"]


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [effect.kind for effect in effects]


def files(result: Result) -> list[Path]:
    return [Path(str(ref.path)) for place, ref in result.artifacts.items() if place]


def colours_of(pdf: Path) -> set[tuple[int, int, int]]:
    """The colours on the first page."""
    found = image_of(pdf).getcolors(1 << 20)
    return {colour for _, colour in found or [] if isinstance(colour, tuple)}  # type: ignore[misc]


def page_of(app: Session) -> Any:
    assert isinstance(app.transport, PageTransport)
    return app.transport.page


def pages(app: Session) -> int:
    return len(page_of(app).context.pages)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(fixture: Fixture, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """A session for the tests that leave nothing behind in it."""
    transport = PlaywrightTransport(fixture.url, browser=browser)
    async with connect(fixture.url, transport=transport, store=tmp_path_factory.mktemp("effects")) as opened:
        yield opened


async def test_one_call_reports_every_side_effect(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    """Under a strict policy; the app kept window.print in its first script."""
    async with connect(fixture.strict_url, browser=browser, store=tmp_path) as app:
        started = time.monotonic()
        result = await ui(
            app,
            "alert",
            "confirm",
            "prompt",
            {"kind": "print", "how": "kept", "text": "as it was"},
            "popup",
            {"kind": "download", "seed": 5, "bytes": 70_000, "filename": "report.bin"},
            "choose",
            "pick",
            {"kind": "copy", "text": "to the clipboard"},
            timeout=60,
        )
        assert time.monotonic() - started < 20
        assert got(result) == [
            *(None, False, None),
            ["beforeprint", "afterprint"],
            *(True, "begun", "cancel", "AbortError", "done"),
        ]
        assert sorted(kinds(result.effects)) == sorted(
            ["dialog"] * 3 + ["print", "popup", "download", "filechooser", "filechooser", "clipboard"]
        )
        assert len({effect.call for effect in result.effects}) == 1 and result.effects[0].call
        by_type: dict[str, list[Path]] = {}
        for place, ref in result.artifacts.items():
            assert place == "document" or place.startswith("captured.")
            by_type.setdefault(ref.mime_type, []).append(Path(str(ref.path)))
        assert next(iter(result.artifacts)) == "document"
        assert [text_of(path) for path in by_type["application/pdf"]] == ["as it was"]
        (download,) = by_type["application/octet-stream"]
        assert download.name == "report.bin"
        assert hashlib.sha256(download.read_bytes()).hexdigest() == digest(70_000, 5)
        assert [path.read_text() for path in by_type["text/plain"]] == ["to the clipboard"]
        await eventually(lambda: pages(app) == 1)


@pytest.mark.requirement("R6-9d", "R6-9h")
async def test_effects_and_their_files_follow_the_answer_in_document_and_summary(app: Session) -> None:
    result = await ui(app, {"kind": "alert", "message": "well\nthen"}, "print", "download", binary=True)
    assert list(result.artifacts) == ["file", "captured.0", "captured.1"]
    assert result.artifacts["file"].filename == "own.pdf"
    effect = result.effects[0]
    told = {"type": "alert", "message": "well\nthen", "answer": "accepted"}
    documents: Any = result.as_dict()["effects"]
    assert documents[0] == {"kind": "dialog", "call": effect.call, "detail": told} and len(documents) == 3
    assert "\nEffect: dialog (type alert, message well then, answer accepted)" in result.summary()
    assert "effects" not in (await app.call("file.list")).as_dict()


# --- dialogs ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-9a", "R6-9b")
async def test_dialogs_are_answered_per_dialogs_option(
    app: Session, fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    transport = PlaywrightTransport(fixture.url, browser=browser, dialogs="accept")
    async with connect(fixture.url, transport=transport, store=tmp_path) as accepting:
        for session, answers, said in (
            (app, [None, False, None], "dismissed"),
            (accepting, [None, True, "suggested"], "accepted"),
        ):
            result = await ui(session, {"kind": "alert", "message": "x" * 2000}, "confirm", "prompt")
            assert got(result) == answers
            assert [len(str(effect.detail["message"])) for effect in result.effects] == [500, 5, 5]
            assert [effect.detail["answer"] for effect in result.effects] == ["accepted", said, said]


async def test_unknown_dialog_and_permission_options_are_rejected() -> None:
    with pytest.raises(UsageError, match="dialogs="):
        PlaywrightTransport("http://localhost/", dialogs="ask")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="teleport"):
        PlaywrightTransport("http://localhost/", permissions=("teleport",))
    with pytest.raises(UsageError, match="must be a list of text, not str"):
        PlaywrightTransport("http://localhost/", permissions="geolocation")


async def test_effects_beyond_100_are_counted(app: Session) -> None:
    result = await ui(app, *["notify"] * 103)
    assert kinds(result.effects) == ["notification"] * 100 + ["more"]
    assert result.effects[-1].detail == {"count": 3}


# --- printing ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-9e")
async def test_page_is_printed_in_its_state_at_print_call(app: Session) -> None:
    """The app empties its print root, repaints its canvas and removes its style sheet as soon as print() returns."""
    page = page_of(app)
    look = "() => [document.documentElement.outerHTML.length, document.adoptedStyleSheets.length, document.title]"
    before = await page.evaluate(look)
    result = await ui(app, {"kind": "print", "text": "first"})
    (pdf,) = files(result)
    assert text_of(pdf) == "first"
    assert (255, 0, 0) in colours_of(pdf) and (0, 0, 255) not in colours_of(pdf)
    assert [round(side) for side in pages_of(pdf)[0]] == [283, 283]  # the 100 mm of the sheet that is gone
    await asyncio.sleep(0.1)
    after = await page.evaluate(look)
    assert after[1:] == before[1:] and await page.locator("body").count() == 1

    # it looks native, and fires the browser's events
    seen = await page.evaluate("[print.name, print.length, String(print), Object.keys(globalThis).includes('print')]")
    assert seen == ["print", 0, "function () { [native code] }", True]
    assert got(await ui(app, {"kind": "print", "clear": "no"})) == [["beforeprint", "afterprint"]]


PICTURE = """async () => {
  const square = (colour) => {
    const canvas = Object.assign(document.createElement('canvas'), { width: 60, height: 60 });
    const brush = canvas.getContext('2d');
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 60, 60);
    return canvas;
  };
  const root = document.getElementById('print-root');
  const data = Object.assign(new Image(), { src: square('#ff0000').toDataURL() });
  const blob = Object.assign(new Image(), {
    src: URL.createObjectURL(await new Promise((resolve) => square('#00ff00').toBlob(resolve))),
  });
  await Promise.all([data.decode(), blob.decode()]);
  URL.revokeObjectURL(blob.src);
  const select = document.createElement('select');
  select.innerHTML = '<option>chosen not</option><option>chosen</option>';
  select.selectedIndex = 1;
  const input = Object.assign(document.createElement('input'), { value: 'typed' });
  const host = document.createElement('div');
  host.attachShadow({ mode: 'open' }).innerHTML = '<p>in the shadow</p>';
  const sheet = Object.assign(document.createElement('style'), { textContent: '#x { border: 20px solid #0000ff }' });
  document.head.append(sheet);
  const styled = Object.assign(document.createElement('div'), { id: 'x', textContent: 'styled' });
  root.append(data, blob, select, input, host, styled);
  print();
  root.replaceChildren();
  sheet.remove();
}"""


async def test_removed_images_fields_and_shadow_trees_are_printed(app: Session) -> None:
    call = asyncio.ensure_future(ui(app, {"kind": "wait", "ms": 1000}))
    await page_of(app).evaluate(PICTURE)
    (pdf,) = files(await call)
    assert sorted(text_of(pdf).split()) == ["chosen", "in", "shadow", "styled", "the", "typed"]
    found = colours_of(pdf)
    for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255)):
        assert any(max(abs(a - b) for a, b in zip(colour, other, strict=True)) < 9 for other in found), colour


@pytest.mark.slow
async def test_copy_for_print_neither_loads_frames_again_nor_shows_fallbacks(browser: Browser, tmp_path: Path) -> None:
    html = app_page(
        '"report.print"() { print(); document.body.append("changed"); return 1; }',
        body='body<iframe src="/in-iframe"></iframe><object data="/in-object">fallback</object><embed src="/in-embed">',
    )
    requests: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.Response:
        requests[request.path] += 1
        return web.Response(text=html if request.path == "/" else "embedded", content_type="text/html")

    async with serve_answers(answer) as url, connect(url, browser=browser, store=tmp_path) as app:
        await eventually(lambda: len(requests) == 4)
        (pdf,) = files(await app.call("report.print"))
        assert text_of(pdf) == "body"
        await app.call("report.print")
    del requests["/"]
    assert set(requests.values()) == {1}, requests


@pytest.mark.requirement("R6-9f")
async def test_parallel_calls_each_get_their_own_print_on_a4_unless_app_says_otherwise(app: Session) -> None:
    sizes = {"": (595, 842), "landscape": (842, 595), "letter": (612, 792)}
    results = await asyncio.gather(*(ui(app, {"kind": "print", "text": f"on {size}", "size": size}) for size in sizes))
    pdfs = [path for result in results for path in files(result)]
    assert [text_of(pdf) for pdf in pdfs] == [f"on {size}".strip() for size in sizes]
    for pdf, points in zip(pdfs, sizes.values(), strict=True):
        assert pages_of(pdf)[0] == pytest.approx(points, abs=2)


#: An app whose capability prints a frame or a window of its own, which it writes itself or which has an address.
PRINTING = app_page(
    """
  frame() {
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.contentDocument.write("<p>The report");
    frame.contentWindow.name = "framed";
    for (let count = 0; count < 3; count += 1) open("", "framed").print();
    frame.remove();
  },
  async written() {
    const report = open("", "report");
    report.document.write("<p>The report");
    await prints(report, 3);
    report.close();
  },
  async addressed() {
    const report = open("/report", "report");
    await prints(report, 0);
    report.close();
  },""",
    before="""
if (location.pathname === "/report") onload = () => print();
const prints = async (view, times) => {
  const printed = new Promise((resolve) => { view.onafterprint = resolve; });
  for (let count = 0; count < times; count += 1) view.print();
  await printed;
};""",
)


@pytest.mark.parametrize("protocol", slow_but(["abp", "auto"], "auto"))
async def test_print_of_frame_or_window_is_a_warning(
    browser: Browser, tmp_path: Path, protocol: Literal["abp", "auto"]
) -> None:
    async with serve_page(PRINTING) as url:
        transport = PlaywrightTransport(url, browser=browser, protocol=protocol)
        async with connect(url, transport=transport, store=tmp_path) as app:
            for way, view in (("frame", "frame"), ("written", "window"), ("addressed", "window")):
                result = await app.call(way)
                assert result.warnings == (f"the app printed a {view}, which makes no PDF",), way
                assert files(result) == [], way


# --- downloads --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-9g")
async def test_app_downloads_become_outputs(app: Session) -> None:
    step = {"kind": "download", "bytes": 300_000, "seed": 9, "filename": "table.csv"}
    for how, remote in itertools.product(("link", "navigate", "frame", "event", "attached"), (False, True)):
        result = await ui(app, {**step, "how": how, "remote": remote})
        (ref,) = result.artifacts.values()
        assert ref.filename == "table.csv" and ref.sha256 == digest(300_000, 9), (how, remote)
        assert [effect.detail["bytes"] for effect in result.effects] == [300_000], (how, remote)


async def test_outputs_outside_calls_are_delivered_with_next_call(app: Session) -> None:
    async with announced(app, 3):
        assert not (await ui(app, "alert", {"kind": "download", "seed": 3}, "print", later=300)).effects
    hashes: list[str] = []
    warnings: list[str] = []
    async with asyncio.timeout(30):
        while len(hashes) < 2:  # either may be done first, and come with an earlier call
            result = await app.call("file.list")
            hashes += [ref.sha256 for ref in result.artifacts.values() if result.warnings]
            warnings += result.warnings
            assert result.effects == ()
    assert sorted(found == digest(1000, 3) for found in hashes) == [False, True]
    assert sorted(warning.split(" began")[0] for warning in warnings) == [
        "the app's download 'app.bin'",
        "the printed page",
    ]
    assert list((await app.call("file.list")).artifacts) == [""]


async def test_excess_outputs_outside_calls_are_dropped_with_warning(app: Session) -> None:
    async with announced(app, 10):
        await ui(app, *[{"kind": "copy", "text": str(n)} for n in range(10)], later=300)
    result = await app.call("file.list")
    assert [path.read_text() for path in files(result)] == [str(n) for n in range(2, 10)]
    assert "2 outputs that began before this call were too many and are lost" in result.warnings


async def test_outputs_of_failed_call_are_delivered_with_next_call(app: Session) -> None:
    with pytest.raises(CapabilityError):
        await ui(app, {"kind": "download", "seed": 4}, "nonsense")
    async with asyncio.timeout(30):
        while not (result := await app.call("file.list")).warnings:
            pass
    assert [ref.sha256 for ref in result.artifacts.values()] == [digest(1000, 4)]


async def test_late_or_aborted_download_is_a_warning(connected: Connect) -> None:
    async with connected() as app:
        cut = "/faults/short/100000/0/cut.bin?cut=1&delta=50000"
        result = await ui(app, {"kind": "download", "url": cut, "filename": "cut.bin"})
        assert result.warnings == ("the app's download 'cut.bin': the browser interrupted it",)
        assert kinds(result.effects) == ["download"] and list(result.artifacts) == [""]
        started = time.monotonic()
        endless = "/faults/long/1000/0/endless.bin?endless=1"
        result = await ui(app, {"kind": "download", "url": endless, "filename": "endless.bin"}, timeout=1.5)
        assert time.monotonic() - started < 4
        assert got(result) == ["begun"] and list(result.artifacts) == [""]
        assert result.warnings == (
            "the app's download 'endless.bin' was not finished in time; it comes with a later call",
        )
        assert list((await app.call("file.list")).artifacts) == [""]


@pytest.mark.slow
async def test_download_from_a_frame_of_a_window_becomes_output(connected: Connect) -> None:
    """Chromium announces no such frame, so that its download was lost, and not limited."""
    async with connected() as app:
        # The browser writes this to another folder.
        await app.call("file.generate", {"bytes": 9 << 20})
        page = page_of(app)
        call = asyncio.ensure_future(ui(app, {"kind": "wait", "ms": 3000}))
        async with page.expect_popup() as popup:
            await page.evaluate("() => { window.open('/embed') }")
        window = await popup.value
        await window.wait_for_load_state()
        await window.evaluate("""() => {
            const frame = document.body.appendChild(document.createElement("iframe"));
            const link = frame.contentDocument.createElement("a");
            link.href = URL.createObjectURL(new Blob(["nested"]));
            link.download = "nested.txt";
            frame.contentDocument.body.append(link);
            link.click();
        }""")
        assert [file.read_text() for file in files(await call)] == ["nested"]


async def test_apps_in_one_browser_each_get_their_own_downloads(app: Session, connected: Connect) -> None:
    """Beside content that the browser writes for us into the same folder, that of the store."""
    async with connected() as other:
        apps = (app, other)
        theirs = (
            ui(app, {"kind": "wait", "ms": 20}, {"kind": "download", "bytes": 400_000, "seed": seed})
            for seed, app in enumerate(apps)
        )
        ours = (app.call("file.generate", {"bytes": 9 << 20, "seed": seed}) for seed, app in enumerate(apps))
        results = await asyncio.gather(*theirs, *ours)
    assert [result.artifacts["document"].sha256 for result in results[:2]] == [digest(400_000, 0), digest(400_000, 1)]
    assert [result.artifacts["file"].sha256 for result in results[2:]] == [digest(9 << 20, 0), digest(9 << 20, 1)]
    assert isinstance(app.store, LocalStore)
    assert list((app.store.root / ".abp" / "staging").iterdir()) == []


async def test_downloads_leave_no_files_or_tasks(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    before = {path.name for path in browser.folder.iterdir()}
    tasks, contexts = asyncio.all_tasks(), set(browser.playwright.contexts)
    transport = PlaywrightTransport(fixture.url, browser=browser)
    async with connect(fixture.url, transport=transport, store=tmp_path / "out") as app:
        await ui(app, "download", "popup", {"kind": "popup", "shows": "html"}, "print", "alert")
        await ui(app, *["download"] * 3, later=10)
        endless = {"kind": "download", "url": "/faults/long/1000/0/endless.bin?endless=1"}
        await ui(app, endless, timeout=1.2)
    assert {path.name for path in browser.folder.iterdir()} == before
    assert list((tmp_path / "out" / ".abp" / "staging").iterdir()) == []
    assert not set(browser.playwright.contexts) - contexts
    await eventually(lambda: asyncio.all_tasks() <= tasks)


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_window_showing_content_becomes_output(connected: Connect) -> None:
    contents: dict[str, bytes | int | None] = {
        "page": None,
        "nothing": None,
        "html": b"<!doctype html><h1>shown</h1>",
        "pdf": b"%PDF-1.4",
        "file": b"%PDF-1.4",
        "octets": 1000,
        "download": 1000,
    }

    async def check(*names: str) -> None:
        async with connected() as app:
            for shows in names:
                content = contents[shows]
                result = await ui(app, {"kind": "popup", "shows": shows}, timeout=20)
                assert got(result) == [True]
                assert result.effects[0].kind == "popup"
                assert "secret" not in str(result.effects[0].detail["url"])
                if content is None:
                    assert list(result.artifacts) == [""], shows
                else:
                    (file,) = files(result)
                    data = file.read_bytes()
                    assert data.startswith(content) if isinstance(content, bytes) else len(data) == content, shows
                await eventually(lambda: pages(app) == 1)

    # Each call waits for seconds whether its window shows something else.
    names = list(contents)
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(check(*names[number::3]))


@pytest.mark.slow
async def test_popups_live_until_call_ends_up_to_eight(connected: Connect) -> None:
    async with connected() as app:
        call = asyncio.ensure_future(ui(app, *["popup"] * 12, {"kind": "wait", "ms": 3000}))
        seen = [0]
        while not call.done():
            seen.append(pages(app))
            await asyncio.sleep(0.05)
        result = await call
        assert max(seen) >= 9 and seen[-5] == 9  # ours and eight; one more lives for the moment that closing it takes
        assert [effect.detail.get("closed") for effect in result.effects].count("too many windows") == 4
        assert "4 windows were too many and were closed at once" in result.warnings
        await eventually(lambda: pages(app) == 1)


# --- permissions, choosers, the clipboard -----------------------------------------------------------------------------


@pytest.mark.requirement("R6-1t", "R6-9c")
async def test_permission_requests_are_answered_immediately(app: Session) -> None:
    names = ("notifications", "geolocation", "camera", "clipboard", "midi", "fonts", "screens", "idle", "capture")
    for answer in got(await ui(app, *({"kind": "ask", "name": name} for name in names))):
        assert answer in ("denied", "error 1", "NotAllowedError", "NotFoundError", [])


async def test_clipboard_writes_become_files_and_reads_need_permission(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    transport = PlaywrightTransport(fixture.url, browser=browser, permissions=("clipboard-read",))
    async with connect(fixture.url, transport=transport, store=tmp_path) as app:
        html = {"kind": "copy", "type": "text/html", "content": "<b>bold</b>"}
        result = await ui(app, {"kind": "copy", "text": "Grüße"}, html, {"kind": "ask", "name": "clipboard"})
        assert got(result)[:2] == ["done", "done"]
        assert got(result)[2] not in ("Grüße", "NotAllowedError")  # what the browser's own clipboard holds
        assert [file.read_text() for file in files(result)] == ["Grüße", "<b>bold</b>"]
        assert [dict(effect.detail) for effect in result.effects] == [
            {"type": "text/plain", "bytes": 7},
            {"type": "text/html", "bytes": 11},
        ]


async def test_shared_data_becomes_file_and_notifications_are_recorded(app: Session) -> None:
    result = await ui(app, {"kind": "share", "title": "Grüße"}, {"kind": "share", "file": "shared.txt"})
    assert got(result) == ["done", "done"]
    text, file = files(result)
    assert text.read_text() == "Grüße"
    assert (file.name, file.read_text()) == ("shared.txt", "shared bytes")
    assert [(effect.kind, dict(effect.detail)) for effect in result.effects] == [
        ("share", {"type": "text/plain", "bytes": 7}),
        ("share", {"type": "text/plain", "bytes": 12}),
    ]

    notice = {"kind": "notify", "title": "Saved", "body": "in a folder"}
    result = await ui(app, notice, {"kind": "ask", "name": "notifications"})
    assert got(result) == ["Saved", "denied"]
    assert [(effect.kind, dict(effect.detail)) for effect in result.effects] == [
        ("notification", {"title": "Saved", "body": "in a folder"}),
        ("notification", {"title": "", "body": ""}),
    ]


async def test_file_choosers_are_closed_without_a_file(app: Session) -> None:
    pickers = ["showOpenFilePicker", "showSaveFilePicker", "showDirectoryPicker"]
    result = await ui(
        app, "choose", {"kind": "choose", "label": True}, *({"kind": "pick", "picker": name} for name in pickers)
    )
    assert got(result) == ["cancel", "cancel", "AbortError", "AbortError", "AbortError"]
    assert kinds(result.effects) == ["filechooser"] * 5

    page = page_of(app)
    await page.evaluate(
        """() => {
          const input = Object.assign(document.createElement('input'), { type: 'file', id: 'chooser' });
          input.style.cssText = 'position: fixed; top: 0; left: 0; z-index: 99';
          document.body.append(input);
          input.addEventListener('cancel', () => { document.title = 'cancelled'; });
        }"""
    )
    call = asyncio.ensure_future(ui(app, {"kind": "wait", "ms": 1500}))
    await page.click("#chooser")  # a real click
    assert kinds((await call).effects) == ["filechooser"]
    assert await page.title() == "cancelled"


# --- losses -----------------------------------------------------------------------------------------------------------


async def test_a_navigation_during_a_call_is_announced_despite_beforeunload(connected: Connect) -> None:
    async with connected() as app:
        page = page_of(app)
        await page.mouse.click(2, 2)  # a page that nobody has touched may not ask
        await page.evaluate("addEventListener('beforeunload', (event) => event.preventDefault())")
        async with announced(app, 1) as effects:
            started = time.monotonic()
            with pytest.raises(ContextLost):
                await app.call("fault.navigate", timeout=20)
            assert time.monotonic() - started < 10
        (effect,) = effects
        assert effect.kind == "navigation" and effect.call is not None


@pytest.mark.fault(2)
async def test_page_crash_and_effect_outside_calls_are_announced(app: Session, connected: Connect) -> None:
    """A page of another session goes on meanwhile."""
    page = page_of(app)
    async with connected() as crashing:
        async with announced(crashing, 1) as effects:
            await page_of(crashing).evaluate("setTimeout(() => alert('late'), 20)")
        assert effects == [Effect("dialog", None, {"type": "alert", "message": "late", "answer": "accepted"})]
        cdp = await page_of(crashing).context.new_cdp_session(page_of(crashing))
        working = asyncio.ensure_future(app.call("job.run", {"steps": 50, "delay": 20}))
        async with announced(crashing, 1) as effects:
            call = asyncio.ensure_future(crashing.call("fault.never", timeout=20))
            await asyncio.sleep(0.3)
            started = time.monotonic()
            crash = asyncio.ensure_future(cdp.send("Page.crash"))
            with pytest.raises(PageCrashed) as caught:
                await call
            assert time.monotonic() - started < 10
            crash.cancel()
        assert effects[0].kind == "crash" and effects[0].call is not None
        assert caught.value.code == "DISCONNECTED" and caught.value.retryable
        assert (await crashing.call("file.list")).artifacts
        assert (await working).data is not None
    assert page_of(app) is page and not page.is_closed()


# --- an embedded app --------------------------------------------------------------------------------------------------

EMBEDDED = """<!doctype html><title>embedded</title><script>
const later = (ms, value) => new Promise((resolve) => setTimeout(resolve, ms, value));
const steps = {
  alert: () => { alert('from a frame'); return 'returned'; },
  print: () => { print(); return 'returned'; },
  open: () => open('/other?token=secret') === null ? 'refused' : 'opened',
  blank: () => { open(''); return 'returned'; },
  module: () => new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])),
  download: () => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob(['of the frame'])); link.download = 'frame.txt';
    link.click();
    return 'begun';
  },
  save: () => { setTimeout(() => steps.download(), 60); URL.createObjectURL(new Blob()); return 'left'; },
  export: () => {
    fetch('/export').then((answer) => answer.blob()).then((blob) => {
      Object.assign(document.createElement('a'), { href: URL.createObjectURL(blob), download: 'a' }).click();
    });
    return 'left';
  },
  many: async () => {
    await new Promise(requestAnimationFrame);
    for (let n = 0; n < 60; n += 1) Object.assign(document.createElement('input'), { type: 'file' }).click();
    return 'returned';
  },
  copy: async () => { await navigator.clipboard.writeText('copied'); return 'returned'; },
  share: async () => {
    await navigator.share({ files: [new File([new Uint8Array(300_000)], 'a.bin')] });
    return 'returned';
  },
  inner: async () => {
    const frame = document.createElement('iframe');
    frame.srcdoc = '<p>The report';
    await new Promise((resolve) => { frame.onload = resolve; document.body.append(frame); });
    frame.contentWindow.print();
    return 'returned';
  },
  choose: () => Promise.race([later(2000, 'nothing'), new Promise((resolve) => {
    const input = Object.assign(document.createElement('input'), { type: 'file' });
    input.oncancel = () => resolve('cancel');
    input.click();
  })]),
};
addEventListener('message', async ({ data, source, origin }) => {
  const { type, id, payload } = data;
  const answer = type === 'initialize'
    ? { sessionId: 's', protocolVersion: '0.1', app: { name: 'embedded' }, capabilities: [{ name: 'do' }] }
    : { success: true, data: { got: await steps[payload.params.step]() } };
  source.postMessage({ type: `${type}-result`, id, timestamp: Date.now(), payload: answer }, origin);
});
</script>"""


BOX = "allow-scripts allow-same-origin allow-downloads"


@pytest.mark.parametrize(
    ("sandbox", "harness", "opens"),
    slow_but([(BOX, "same", False), (BOX, "same", True), (None, "other", True)], (BOX, "same", False)),
    ids=["", "sandboxed windows", "free"],
)
async def test_embedded_app_side_effects_come_with_its_reply_and_block_nothing(
    browser: Browser, tmp_path: Path, sandbox: str | None, harness: Literal["same", "other"], opens: bool
) -> None:
    free = sandbox is None
    own_class = "window.Blob = class extends Blob {};" if free else ""
    async with serve_page(EMBEDDED.replace("<script>", f"<script>{own_class}")) as url:
        transport = PostMessageTransport(url, browser=browser, sandbox=sandbox, harness=harness)
        async with connect(url, transport=transport, store=tmp_path) as app:
            expected: dict[str, tuple[object, list[str], list[bytes]]] = {
                "alert": ("returned", ["dialog"] if free else [], []),
                "print": ("returned", ["print"], [b"%PDF-1.4\n%\xd3\xeb"]),
                "choose": ("cancel", ["filechooser"], []),
                "download": ("begun", ["download"], [b"of the frame"]),
                "copy": ("returned", ["clipboard"], [b"copied"]),
                "save": ("left", ["download"], [b"of the frame"]),
                "export": ("left", ["download"], [b"<!doctype ht"]),
            }
            if opens:
                expected["open"] = ("opened" if free else "refused", ["popup"], [])
            for step, outcome in expected.items():
                result = await app.call("do", {"step": step}, timeout=5)
                contents = [file.read_bytes()[:12] for file in files(result)]
                assert (got(result), kinds(result.effects), contents) == outcome, step
            for _ in range(3):
                result = await app.call("do", {"step": "many"}, timeout=5)
                assert kinds(result.effects) == ["filechooser"] * 60
            warnings = {
                "print": (),
                "share": ("what the app shared (300,000 bytes) is too long to be kept; have the app return it",),
                "inner": ("the app printed a frame, which makes no PDF",),
            }
            if opens:
                warnings["blank"] = () if free else (UNOPENED,)
            for step, lost in warnings.items():
                result = await app.call("do", {"step": step}, timeout=5)
                assert (got(result), result.warnings) == ("returned", lost), step
            with pytest.raises(CapabilityError, match="what another origin may not have"):
                await app.call("do", {"step": "module"}, timeout=5)
            await eventually(lambda: pages(app) == 1)


async def test_effects_of_app_that_a_first_page_leads_to_are_handled(browser: Browser, tmp_path: Path) -> None:
    requests: Counter[str] = Counter()
    is_released = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        requests[request.path] += 1
        if request.path == "/slow.png":
            await is_released.wait()
        text = "<script>onload = () => setTimeout(() => location.replace('/app'), 20)</script>"
        if request.path == "/app":
            text = f"{EMBEDDED}<img src=/slow.png>"
        return web.Response(text=text, content_type="text/html")

    async with serve_answers(answer) as url:
        transport = PostMessageTransport(url, browser=browser)
        async with connect(url, transport=transport, store=tmp_path) as app:
            for is_loaded in (False, True):
                if is_loaded:
                    is_released.set()
                    await page_of(app).main_frame.child_frames[0].wait_for_load_state()
                result = await app.call("do", {"step": "copy"}, timeout=5)
                assert (got(result), kinds(result.effects)) == ("returned", ["clipboard"])
                assert [file.read_bytes() for file in files(result)] == [b"copied"]
            assert requests["/app"] == 1
