"""Servers of other projects whose tools have views: the examples of the MCP Apps SDK, installed by npm."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.eventually import eventually
from tests.support.needs import missing
from transports import CapabilityError, Session, View, connect

pytestmark = [pytest.mark.hosts, pytest.mark.browser]

SERVERS = {"basic-vanillajs": "2.0.3", "budget-allocator": "2.0.3", "debug": "2.0.3", "pdf": "2.0.4"}
#: A page with nothing on it.
BLANK = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the servers; they need no network afterwards."""
    folder = tmp_path_factory.mktemp("servers")
    if (npm := shutil.which("npm")) is None or shutil.which("node") is None:
        missing("node", "the servers are programs of Node.js")
    names = [f"@modelcontextprotocol/server-{name}@{version}" for name, version in SERVERS.items()]
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        missing("the servers", done.stderr[-500:])
    return folder


@asynccontextmanager
async def served(folder: Path, name: str, store: Path, *args: str) -> AsyncIterator[Session]:
    script = folder / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    async with connect(" ".join([f"mcp+stdio:node {script} --stdio", *args]), store=store) as app:
        yield app


async def hash_of_next_file(view: View) -> None:
    """Begin to note the SHA-256 of the file in the view's next message, in the page that the message goes to."""
    page = view.frame.page
    await page.evaluate("""() => addEventListener("message", async ({ data }) => {
      if (data?.method !== "ui/download-file") return;
      const bytes = Uint8Array.from(atob(data.params.contents[0].resource.blob), (one) => one.charCodeAt(0));
      const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
      globalThis.sent = [...digest].map((one) => one.toString(16).padStart(2, "0")).join("");
    })""")


@pytest.mark.parametrize(("name", "title"), [("basic-vanillajs", "Get Time App"), ("debug", "Debug App")])
async def test_a_view_without_tools_opens(folder: Path, tmp_path: Path, name: str, title: str) -> None:
    async with served(folder, name, tmp_path) as app:
        (tool, *_) = [one.name for one in app.capabilities.values() if one.view]
        async with app.open_view(tool) as view:
            assert view.info.name == title and dict(view.capabilities) == {}
            await eventually(lambda: any(one.kind == "size" for one in view.requests))
            assert view.violations == () and view.warnings == ()


async def test_a_view_of_basic_vanillajs_asks_its_host(folder: Path, tmp_path: Path) -> None:
    async with served(folder, "basic-vanillajs", tmp_path) as app, app.open_view("get-time") as view:
        before = await view.frame.locator("#server-time").inner_text()
        await view.frame.locator("#get-time-btn").click()
        await eventually(lambda: is_changed(view, before))
        for button in ("#send-message-btn", "#send-log-btn", "#open-link-btn"):
            await view.frame.locator(button).click()
        kinds = {"message", "log", "open-link"}
        await eventually(lambda: kinds <= {one.kind for one in view.requests})


async def is_changed(view: View, before: str) -> bool:
    return await view.frame.locator("#server-time").inner_text() != before


async def test_every_tool_of_budget_allocators_view(folder: Path, tmp_path: Path) -> None:
    async with served(folder, "budget-allocator", tmp_path) as app, app.open_view("get-budget-data") as view:
        for tool, params in (
            ("set-total-budget", {"amount": 500000}),
            ("set-allocation", {"categoryId": "marketing", "percent": 30}),
            ("set-company-stage", {"stage": "Seed"}),
            ("get-benchmark-comparison", {}),
        ):
            await view.call(tool, params)
        data = (await view.call("get-allocations")).data
        assert isinstance(data, dict) and (data["totalBudget"], data["selectedStage"]) == (500000, "Seed")
        assert set(view.capabilities) == {
            "set-total-budget", "set-allocation", "set-company-stage", "get-benchmark-comparison", "get-allocations"
        }  # fmt: skip
        with pytest.raises(CapabilityError, match="not found"):
            await view.call("set-company-stage", {"stage": "none"})
        assert (await view.screenshot()).artifact().size_bytes > 10_000


async def test_the_download_of_pdf_is_what_the_view_sent(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(BLANK)
    path = str(tmp_path / "a.pdf")
    async with (
        served(folder, "pdf", tmp_path / "out", "--enable-interact", path) as app,
        app.open_view("display_pdf", {"url": path}, csp="loose") as view,
    ):
        assert set(view.capabilities) == {"interact"}
        await eventually(lambda: view.model_context)  # the document is shown
        await view.call("interact", {"action": "navigate", "page": 1})
        await hash_of_next_file(view)
        await view.frame.locator("#download-btn").click()
        await eventually(lambda: view.files)
        (file,) = view.files
        assert file.mime_type == "application/pdf"
        assert file.path is not None and file.path.read_bytes().startswith(b"%PDF")
        assert file.sha256 == await view.frame.page.evaluate("sent")
        assert [one.answer for one in view.requests if one.kind == "download-file"] == [{}]


async def test_pdf_stays_blank_under_the_policy_of_the_specification(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(BLANK)
    path = str(tmp_path / "a.pdf")
    async with (
        served(folder, "pdf", tmp_path / "out", "--enable-interact", path) as app,
        app.open_view("display_pdf", {"url": path}, host="spec") as view,
    ):
        await eventually(lambda: view.violations)
        await asyncio.sleep(1)  # it would have been shown by now
        assert 'directive: "script-src ' in view.violations[0] and "worker" in view.violations[0]
        assert view.model_context is None and view.files == ()
