"""``abp conformance`` over MCP servers whose tools have views: every planted fault is found, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.e2e.test_conformance import found
from tests.support.mcp_servers import target
from tests.support.planted_views import ALLOWED_VIEWS, PLANTED_VIEWS, PlantedView
from transports import Browser, UsageError
from transports.errors import ConnectFailed
from transports.mcp._connection import VIEW_TYPE
from transports.surfaces.cli import main
from transports.testing.conformance import VIEW_CHECKS, Plan, Report, _view_checks as checks, check_app

pytestmark = pytest.mark.browser
in_session = pytest.mark.asyncio(loop_scope="session")


async def checked(planted: PlantedView, browser: Browser) -> Report:
    # A view may take four times as long to open. Blank views take it all, and others may on a busy machine.
    return await check_app(planted.target, Plan(timeout=4, calls=planted.opens), browser=browser)


async def checked_together(planted: Sequence[PlantedView], browser: Browser) -> list[Report]:
    """Reports in the order of ``planted``. Some are made at a time, since most of each is waiting."""
    free = asyncio.Semaphore(4)

    async def check(view: PlantedView) -> Report:
        async with free:
            return await checked(view, browser)

    return await asyncio.gather(*map(check, planted))


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


def split_faults() -> tuple[list[PlantedView], list[PlantedView]]:
    """The faults of each run: one of each check, and those that need no open view; and the others, which are slow."""
    quick: list[PlantedView] = []
    slow: list[PlantedView] = []
    for planted in PLANTED_VIEWS:
        is_shown = any(planted.check == other.check for other in quick)
        (slow if planted.opens and is_shown else quick).append(planted)
    return quick, slow


QUICK, SLOW = split_faults()


@pytest.mark.parametrize("faults", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["quick", "slow"])
@in_session
async def test_each_planted_fault_is_found(faults: list[PlantedView], browser: Browser) -> None:
    for planted, report in zip(faults, await checked_together(faults, browser), strict=True):
        by = found(report)
        assert planted.check in by, (planted, by)
        broken = any(check.level == "MUST" for check in VIEW_CHECKS if check.id in by)
        assert report.conformant is not broken, (planted, by)
        if planted.opens and planted.name in BLANK:
            (said,) = by["view.shown"]
            assert said.startswith("ui://planted/view.html: ") and BLANK[planted.name] in said
        if key := MISSPELT.get(planted.name):
            said = f"show: no host reads {key}, so its view was not checked; did you mean _meta.ui.resourceUri?"
            assert by == {"APP-007": (said,)} and report.counts["passed"] == 0 and not report.conformant


@pytest.mark.slow
@in_session
async def test_allowed_behaviour_has_no_findings(browser: Browser) -> None:
    allowed = [PlantedView("", "", opens=True), *ALLOWED_VIEWS]
    reports = await checked_together(allowed, browser)
    for planted, report in zip(allowed, reports, strict=True):
        assert found(report) == {} and report.conformant, planted
        assert report.kind == "mcp" and report.app == "planted 1", planted
    good = reports[0]
    assert {one.check.id for one in good.with_status("passed")} == {check.id for check in VIEW_CHECKS}
    assert good.called == ("show",) and good.skipped == {}


@in_session
async def test_conformance_without_calls_opens_no_view_and_reports_it(browser: Browser) -> None:
    report = await checked(PlantedView("no ui/initialize", ""), browser)
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
