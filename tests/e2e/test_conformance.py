"""``abp conformance`` over the reference app: every planted fault is found, and nothing else."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import serve_page
from tests.support.planted import ALLOWED, PLANTED, Planted
from tests.support.slow import slow_but
from transports import Browser
from transports.testing.conformance import CHECKS, Plan, Report, check_app
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
