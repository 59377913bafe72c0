"""``abp conformance`` over MCP servers whose tools have views: every planted fault is found, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.test_conformance import found
from tests.support.mcp_servers import target
from tests.support.planted_views import ALLOWED_VIEWS, PLANTED_VIEWS, PlantedView, faulty_target
from transports import Browser, UsageError
from transports.errors import ConnectFailed
from transports.mcp._connection import VIEW_TYPE
from transports.surfaces.cli import main
from transports.testing.conformance import VIEW_CHECKS, Plan, Report, _view_checks as checks, check_app

pytestmark = pytest.mark.browser
in_session = pytest.mark.asyncio(loop_scope="session")


async def checked(target: str, browser: Browser, *, calls: bool) -> Report:
    # A view may take four times as long to open. Blank views take it all, and others may on a busy machine.
    return await check_app(target, Plan(timeout=4, calls=calls), browser=browser)


async def checked_together(targets: Sequence[tuple[str, bool]], browser: Browser) -> list[Report]:
    """The reports in the order of ``targets``, which tell whether the tools are called. Some are made at a time, since
    most of each is waiting."""
    free = asyncio.Semaphore(4)

    async def check(target: str, calls: bool) -> Report:
        async with free:
            return await checked(target, browser, calls=calls)

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
async def test_allowed_behaviour_has_no_findings(browser: Browser) -> None:
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
    report = await checked(faulty_target("no ui/initialize"), browser, calls=False)
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
