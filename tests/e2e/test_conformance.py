"""``abp conformance`` over the reference app and over views: every planted fault is found, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.mcp_servers import target
from tests.support.pages import serve_page
from tests.support.planted import ALLOWED, ALLOWED_VIEWS, PLANTED, PLANTED_VIEWS, Planted, PlantedView, faulty_target
from tests.support.slow import slow_but
from transports import Browser, UsageError
from transports.errors import ConnectFailed
from transports.mcp._connection import VIEW_TYPE
from transports.surfaces.cli import main
from transports.testing.conformance import CHECKS, VIEW_CHECKS, Plan, Report, _view_checks as checks, check_app
from transports.testing.conformance._gather import probe_page
from transports.testing.plugin import serve_pages
from webapp_fixture import Fixture

pytestmark = pytest.mark.browser
in_session = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def private(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fault.redirect_away` leads to another port of this machine."""
    monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")


async def checked(fixture: Fixture, browser: Browser, kind: str, planted: Planted | None = None) -> Report:
    base = {"page": fixture.url, "embedded": fixture.embed_url, "websocket": fixture.ws_url}[kind]
    plan = Plan(timeout=planted.timeout, only=planted.only) if planted else Plan(timeout=1.0)
    return await check_app(
        f"{base}{planted.path}?{planted.query}" if planted else base,
        plan,
        transport="postmessage" if kind == "embedded" else "auto",
        browser=None if kind == "websocket" else browser,
    )


def found(report: Report) -> dict[str, tuple[str, ...]]:
    return {one.check.id: one.findings for one in report.outcomes if one.status in ("failed", "warning")}


def every_pair() -> Iterator[Any]:
    """Every fault over the kind of app where it is found soonest, and each check over pages too."""
    shown: set[str] = set()
    for one in PLANTED:
        quickest = max(one.kinds, key=["embedded", "page", "websocket"].index)
        for kind in one.kinds:
            if kind == quickest or (kind == "page" and one.check not in shown):
                yield pytest.param(one, kind, id=f"{one.name}-{one.check}-{kind}")
            if kind == "page":
                shown.add(one.check)


@pytest.mark.requirement("R6-2a", "R6-2b", "R6-2c", "R6-2d", "R6-2e", "R6-2f", "R6-2g", "R6-2h", "R6-2i", "R6-2j")
@pytest.mark.requirement("R6-2k", "R6-2l", "R6-2m", "R6-2n", "R6-2o", "R6-2p", "R6-2q", "R6-2u", "R6-2v", "R6-2w")
@pytest.mark.requirement("R6-7d", "R6-7e", "R6-8d")
@pytest.mark.requirement("R0-11a", "R0-11b", "R0-11c", "R0-11d", "R1-2d", "R1-2e", "R1-3d", "R1-5c", "R1-12a", "R1-13a")
@pytest.mark.requirement("R1-13b", "R1-13c", "R1-13d", "R1-13e")
@pytest.mark.parametrize(("planted", "kind"), list(every_pair()))
@in_session
@pytest.mark.slow
async def test_a_planted_fault_is_found(planted: Planted, kind: str, fixture: Fixture, browser: Browser) -> None:
    report = await checked(fixture, browser, kind, planted)
    by = found(report)
    assert planted.check in by, by
    level = next(check.level for check in CHECKS if check.id == planted.check)
    assert report.conformant is (level == "SHOULD") or any(check.level == "MUST" for check in CHECKS if check.id in by)


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        pytest.param(planted, kind, id=f"{planted.name}{planted.path}-{kind}")
        for planted in ALLOWED
        for kind in planted.kinds
    ],
)
@in_session
@pytest.mark.slow
async def test_allowed_behaviour_has_no_findings(
    planted: Planted, kind: str, fixture: Fixture, browser: Browser
) -> None:
    report = await checked(fixture, browser, kind, planted)
    assert found(report) == {}


@pytest.mark.requirement("R1-12a", "R1-12b", "R1-12c", "R1-13d")
@pytest.mark.parametrize("kind", slow_but(["page", "embedded", "websocket"], "page", "websocket"))
@in_session
async def test_reference_app_passes_conformance(kind: str, fixture: Fixture, browser: Browser) -> None:
    contexts = len(browser.playwright.contexts)
    report = await checked(fixture, browser, kind)
    assert len(browser.playwright.contexts) == contexts  # nothing is left behind
    assert found(report) == {}
    assert report.conformant and report.app == "Workbench 1.0.0" and report.skipped == {}
    passed = {outcome.check.theme for outcome in report.with_status("passed")}
    assert passed >= {"session", "schema", "answers", "binary", "errors", "cancel"}


def extension(folder: Path) -> Path:
    """The minimal app as a Chrome extension."""
    shutil.copytree(ROOT / "examples" / "minimal_app", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "app.html").rename(folder / "abp-app.html")
    manifest = {
        "manifest_version": 3,
        "name": "Badges",
        "version": "1.0.0",
        "background": {"service_worker": "worker.js"},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "worker.js").write_text("")
    return folder


#: An app whose page reloads while it begins, as pages do that have installed their first service worker.
_RELOADING = """<!doctype html><script>
  const capabilities = [{ name: "count", available: true }];
  const app = { id: "a", name: "A", version: "1" };
  window.abp = {
    protocolVersion: "0.1", app, listCapabilities: async () => capabilities, shutdown: async () => {},
    async initialize() {
      if (localStorage.began) return { sessionId: "s", protocolVersion: "0.1", app, capabilities };
      localStorage.began = true;
      location.reload();
      return new Promise(() => {});
    },
    call: async () => ({ success: true, data: 1 }),
  };
</script>"""


@in_session
@pytest.mark.slow
async def test_page_that_reloads_while_its_app_begins_is_checked(browser: Browser) -> None:
    async with serve_page(_RELOADING) as url:
        report = await check_app(url, Plan(timeout=2.0), browser=browser)
    assert report.called == ("count",)
    assert {one.check.id for one in report.with_status("passed")} >= {
        "page.members",
        "page.reload",
        "session.initialize",
    }


@pytest.mark.requirement("R6-11d")
@pytest.mark.usefixtures("whole_chromium")
@in_session
@pytest.mark.slow
async def test_extension_conforms(tmp_path: Path) -> None:
    report = await check_app(f"extension:{extension(tmp_path / 'badges')}", Plan(timeout=1.0))
    assert found(report) == {} and report.kind == "extension" and report.called == ("badge.make",)
    assert {one.check.id for one in report.with_status("passed")} >= {"page.reload", "binary.type", "session.list"}


@in_session
async def test_probe_of_a_page_that_spins_ends_soon(tmp_path: Path, browser: Browser) -> None:
    script = "window.abp = { initialize: () => ({}), call() { while (true); } }"
    page = tmp_path / "page.html"
    page.write_text(f"<script>{script}</script>")
    with serve_pages() as address_of:
        async with asyncio.timeout(15):
            steps = await probe_page(browser, address_of(page), storage_state=None, timeout=10)
    assert "broke" in steps


# --- MCP servers whose tools have views -------------------------------------------------------------------------------


async def checked_views(target: str, browser: Browser, *, calls: bool) -> Report:
    # A view may take four times as long to open. Blank views take it all, and others may on a busy machine.
    return await check_app(target, Plan(timeout=4, calls=calls), browser=browser)


async def checked_together(targets: Sequence[tuple[str, bool]], browser: Browser) -> list[Report]:
    """The reports in the order of ``targets``, which tell whether the tools are called. Some are made at a time, since
    most of each is waiting."""
    free = asyncio.Semaphore(4)

    async def check(target: str, calls: bool) -> Report:
        async with free:
            return await checked_views(target, browser, calls=calls)

    return await asyncio.gather(*(check(*target) for target in targets))


#: Why a view is blank, by the fault.
BLANK = {
    "the type is text/html": "is text/html; hosts show text/html;profile=mcp-app only",
    "no ui/initialize": "it sent no ui/initialize",
    "a script does not parse": "(line 2)",
    "a foreign library": "script-src 'self' 'unsafe-inline'",
}
#: What is found in the place of the key of the view's address.
MISSPELT = {
    "resourceURI": "_meta.ui.resourceURI",
    "resource_uri beside visibility": "_meta.ui.resource_uri",
    "ui/resourceuri": '_meta["ui/resourceuri"]',
    "the address at another key": "_meta.planted.view",
}


BY_NAME = {planted.name: planted for planted in PLANTED_VIEWS}
#: Faults that are seen in what a server lists, each of a view of its own.
LISTED = [planted for planted in PLANTED_VIEWS if not planted.opens]
#: Faults of one view each, which do not hide each other.
TOGETHER = [
    [
        "no content",
        "an unknown method",
        "tools/list refused",
        "fullscreen unasked",
        "a script fails",
        "a foreign picture",
    ],
    ["no appCapabilities", "no size", "nothing drawn"],
    ["no ui/initialize"],
    ["no initialized"],
]


@in_session
async def test_planted_faults_are_found_together(browser: Browser) -> None:
    """Each check finds one at least."""
    of_listed = (faulty_target(*(planted.name for planted in LISTED)), False)
    of_opened = [(faulty_target("+".join(names)), True) for names in TOGETHER]
    listed, *opened = await checked_together([of_listed, *of_opened], browser)
    for number, planted in enumerate(LISTED):
        assert_found(planted, listed, f"-{number}" if number else "")
    for names, report in zip(TOGETHER, opened, strict=True):
        for name in names:
            assert_found(BY_NAME[name], report)
    shown = {planted.check for planted in LISTED} | {BY_NAME[name].check for names in TOGETHER for name in names}
    assert shown == {check.id for check in VIEW_CHECKS}


def assert_found(planted: PlantedView, report: Report, end: str = "") -> None:
    by = found(report)
    place = rf"\bshow{end}[: ]|\bview{end}\.html"
    said = [text for text in by.get(planted.check, ()) if re.search(place, text)]
    assert said, (planted, by)
    broken = any(check.level == "MUST" for check in VIEW_CHECKS if check.id in by)
    assert report.conformant is not broken, (planted, by)
    if planted.opens and planted.name in BLANK:
        (blank,) = by["view.shown"]
        assert blank.startswith("ui://planted/view.html: ") and BLANK[planted.name] in blank
    if key := MISSPELT.get(planted.name):
        assert said == [
            f"show{end}: no host reads {key}, so its view was not checked; did you mean _meta.ui.resourceUri?"
        ]


@pytest.mark.slow
@in_session
async def test_each_planted_fault_is_found(browser: Browser) -> None:
    reports = await checked_together([(planted.target, planted.opens) for planted in PLANTED_VIEWS], browser)
    for planted, report in zip(PLANTED_VIEWS, reports, strict=True):
        assert_found(planted, report)
        if planted.name in MISSPELT:
            assert [*found(report)] == ["APP-007"] and report.counts["passed"] == 0 and not report.conformant


@pytest.mark.slow
@in_session
async def test_allowed_views_have_no_findings(browser: Browser) -> None:
    allowed = [PlantedView("", "", opens=True), *ALLOWED_VIEWS]
    reports = await checked_together([(planted.target, planted.opens) for planted in allowed], browser)
    for planted, report in zip(allowed, reports, strict=True):
        assert found(report) == {} and report.conformant, planted
        assert report.kind == "mcp" and report.app == "planted 1", planted
    good = reports[0]
    assert {one.check.id for one in good.with_status("passed")} == {check.id for check in VIEW_CHECKS}
    assert good.called == ("show",) and good.skipped == {}


@in_session
async def test_conformance_without_calls_opens_no_view_and_reports_it(browser: Browser) -> None:
    report = await checked_views(faulty_target("no ui/initialize"), browser, calls=False)
    reasons = {one.check.id: one.findings for one in report.with_status("not-applicable")}
    assert reasons["APP-100"] == ("no view was opened",) and report.called == ()
    assert report.skipped == {"show": "calls are turned off"} and report.conformant


@in_session
async def test_missing_server_and_invalid_options_are_rejected() -> None:
    with pytest.raises(ConnectFailed):
        await check_app("mcp+stdio:/nonexistent/server")
    with pytest.raises(UsageError, match="storage_state= cannot be combined with an MCP server"):
        await check_app(target("views"), storage_state="state.json")
    with pytest.raises(UsageError, match="use 'mcp'"):
        await check_app(target("views"), transport="playwright")


def test_conformance_report_uses_official_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit, planted = tmp_path / "junit.xml", PlantedView("a space in the type", "APP-002")
    assert main(["conformance", planted.target, "--no-calls", "--json", "--junit", str(junit)]) == 1
    document = json.loads(capsys.readouterr().out)
    (failed,) = [one for one in document["checks"] if one["status"] == "failed"]
    assert (failed["id"], failed["level"], document["kind"]) == ("APP-002", "MUST", "mcp")
    suite = ElementTree.parse(junit).getroot()[0]
    (case,) = [case for case in suite if case.find("failure") is not None]
    assert (case.get("classname"), case.get("name")) == ("abp.APP", "APP-002") and len(suite) == len(VIEW_CHECKS)


def test_server_without_views_is_unchecked_and_does_not_conform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit, badge = tmp_path / "junit.xml", tmp_path / "badge.json"
    args = ["conformance", PlantedView("no view", "").target]
    assert main([*args, "--junit", str(junit), "--badge", str(badge)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    reason = "an MCP server is judged by its views, and no tool of this one has _meta.ui.resourceUri"
    assert last.startswith(f"NOTHING WAS CHECKED: {reason}; 0 passed, 0 failed, 0 warnings, ")
    suite = ElementTree.parse(junit).getroot()[0]
    (error,) = suite.iter("error")
    assert error.get("message") == f"nothing was checked: {reason}"
    assert (suite.get("errors"), suite.get("failures"), suite.get("tests")) == ("1", "0", str(len(suite)))
    assert json.loads(badge.read_text())["message"] == "nothing was checked"
    assert main([*args, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["success"], document["why_unchecked"], document["counts"]["passed"]) == (False, reason, 0)


def test_view_mime_type_matches_client() -> None:
    assert checks.VIEW_TYPE == VIEW_TYPE
