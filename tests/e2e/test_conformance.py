"""``abp conformance`` over the reference app: every planted fault is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from transports import Browser
from transports.testing.conformance import CHECKS, Plan, Report, check_app
from webapp_fixture import Fixture

from ..planted import ALLOWED, FAULTS, Planted

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

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
    return {one.check.id: one.seen for one in report.outcomes if one.status in ("failed", "warning")}


@pytest.mark.parametrize(
    ("planted", "kind"),
    [pytest.param(one, kind, id=f"{one.name}-{one.check}-{kind}") for one in FAULTS for kind in one.kinds],
)
async def test_a_planted_fault_is_found(planted: Planted, kind: str, fixture: Fixture, browser: Browser) -> None:
    report = await checked(fixture, browser, kind, planted)
    by = found(report)
    assert planted.check in by, by
    level = next(check.level for check in CHECKS if check.id == planted.check)
    assert report.conformant is (level == "SHOULD") or any(check.level == "MUST" for check in CHECKS if check.id in by)


@pytest.mark.parametrize(
    ("planted", "kind"),
    [pytest.param(one, kind, id=f"{one.name}{one.path}-{kind}") for one in ALLOWED for kind in one.kinds],
)
async def test_what_is_allowed_is_no_fault(planted: Planted, kind: str, fixture: Fixture, browser: Browser) -> None:
    report = await checked(fixture, browser, kind, planted)
    assert found(report) == {}


@pytest.mark.parametrize("kind", ["page", "embedded", "websocket"])
async def test_the_reference_app_passes(kind: str, fixture: Fixture, browser: Browser) -> None:
    report = await checked(fixture, browser, kind)
    assert found(report) == {}
    assert report.conformant and report.app == "Workbench 1.0.0" and report.skipped == {}
    passed = {outcome.check.theme for outcome in report.with_status("passed")}
    assert passed >= {"session", "schema", "answers", "binary", "errors", "cancel"}
