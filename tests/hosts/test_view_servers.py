"""Servers of other projects whose tools have views: the examples of the MCP Apps SDK, installed by npm."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.eventually import eventually
from tests.support.needs import missing
from transports import CapabilityError, Session, View, connect
from transports.base import WrappedTransport
from transports.mcp.views._diagnosis import is_blank

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


@asynccontextmanager
async def pdf_view(folder: Path, tmp_path: Path, *options: str, **more: Any) -> AsyncIterator[View]:
    """The view of a document with nothing on it."""
    path = tmp_path / "a.pdf"
    path.write_bytes(BLANK)
    async with (
        served(folder, "pdf", tmp_path / "out", *options, str(path)) as app,
        app.open_view("display_pdf", {"url": str(path)}, **more) as view,
    ):
        yield view


async def hash_of_next_file(view: View) -> None:
    """Begin to note the SHA-256 of the file in the view's next message, in the page that the message goes to."""
    page = view.frame.page
    await page.evaluate("""() => addEventListener("message", async ({ data }) => {
      if (data?.method !== "ui/download-file") return;
      const bytes = Uint8Array.from(atob(data.params.contents[0].resource.blob), (one) => one.charCodeAt(0));
      const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
      globalThis.sent = [...digest].map((one) => one.toString(16).padStart(2, "0")).join("");
    })""")


async def test_pdf_view_download_matches_what_view_sent(folder: Path, tmp_path: Path) -> None:
    async with pdf_view(folder, tmp_path, "--enable-interact", csp="loose") as view:
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


async def test_pdf_view_stays_blank_under_specification_policy(folder: Path, tmp_path: Path) -> None:
    async with pdf_view(folder, tmp_path, "--enable-interact", host="spec") as view:
        await eventually(lambda: view.violations)
        await asyncio.sleep(1)  # it would have been shown by now
        assert 'directive: "script-src ' in view.violations[0] and "worker" in view.violations[0]
        assert view.model_context is None and view.files == ()


# --- every tool of every server ---------------------------------------------------------------------------------------

#: A page that says "Hello, view".
HELLO = BLANK.replace(
    b"/MediaBox[0 0 300 300]>>endobj",
    b"/MediaBox[0 0 300 300]/Contents 4 0 R"
    b"/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj "
    b"4 0 obj<</Length 44>>stream\nBT /F 24 Tf 20 200 Td (Hello, view) Tj ET    \nendstream endobj",
)
CALL = """([name, given]) => new Promise((resolve) => {
  const id = `of-the-test-${Math.random()}`;
  addEventListener("message", function heard({ data }) {
    if (data?.id !== id || data.method !== undefined) return;
    removeEventListener("message", heard);
    resolve(data.error ?? data.result);
  });
  parent.postMessage({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: given } }, "*");
})"""


class Tried:
    """Calls of a server's tools, by the side that may make them, and the names that were called."""

    def __init__(self, app: Session, view: View) -> None:
        self.app, self.view = app, view
        self.names: set[str] = set()

    async def model(self, tool: str, params: dict[str, Any] | None = None) -> Any:
        """Call a tool as a model does, and return its data."""
        self.names.add(tool)
        return (await self.app.call(tool, params or {})).data

    async def server(self, tool: str, params: dict[str, Any] | None = None) -> Any:
        """Call a tool of the server as its view does, and return MCP's result."""
        self.names.add(tool)
        return await self.view.frame.evaluate(CALL, [tool, params or {}])

    async def own(self, tool: str, params: dict[str, Any] | None = None) -> Any:
        """Call a tool that the view registers."""
        self.names.add(f"view: {tool}")
        return (await self.view.call(tool, params or {})).data

    @property
    def missing(self) -> set[str]:
        """Tools that were not called, of the server and of the view. Those of the kit are no tools of the server."""
        transport: Any = self.app.transport
        while isinstance(transport, WrappedTransport):
            transport = transport.wrapped
        return {*transport.tools, *(f"view: {name}" for name in self.view.capabilities)} - self.names


def text_of(result: Any) -> str:
    assert not result.get("isError") and "code" not in result, result
    return " ".join(block["text"] for block in result["content"] if block["type"] == "text")


async def check_opened(view: View, title: str) -> None:
    """A view that has no tools of its own is open, and nothing was amiss."""
    assert view.info.name == title and dict(view.capabilities) == {}
    await eventually(lambda: any(one.kind == "size" for one in view.requests))
    assert view.violations == () and view.warnings == ()


async def test_basic_vanillajs_view_sends_host_requests_and_its_tool_works(folder: Path, tmp_path: Path) -> None:
    async with served(folder, "basic-vanillajs", tmp_path) as app, app.open_view("get-time") as view:
        await check_opened(view, "Get Time App")
        time = view.frame.locator("#server-time")
        before = await time.inner_text()

        async def is_changed() -> bool:
            return await time.inner_text() != before

        await view.frame.locator("#get-time-btn").click()
        await eventually(is_changed)
        for button in ("#send-message-btn", "#send-log-btn", "#open-link-btn"):
            await view.frame.locator(button).click()
        kinds = {"message", "log", "open-link"}
        await eventually(lambda: kinds <= {one.kind for one in view.requests})
        tried = Tried(app, view)
        first = datetime.fromisoformat((await tried.model("get-time"))["time"])
        second = datetime.fromisoformat((await tried.server("get-time"))["structuredContent"]["time"])
        assert first <= second <= datetime.now(UTC)
        assert tried.missing == set()


async def test_every_budget_allocator_tool_works(folder: Path, tmp_path: Path) -> None:
    async with served(folder, "budget-allocator", tmp_path) as app, app.open_view("get-budget-data") as view:
        tried = Tried(app, view)
        config = (await tried.model("get-budget-data"))["config"]
        assert "marketing" in {one["id"] for one in config["categories"]}
        assert (await tried.server("get-budget-data"))["structuredContent"]["config"] == config
        said = [
            await tried.own("set-total-budget", {"amount": 500000}),
            await tried.own("set-allocation", {"categoryId": "marketing", "percent": 30}),
            await tried.own("set-company-stage", {"stage": "Seed"}),
        ]
        assert [text_of(one) for one in said] == [
            "Total budget set to $500,000", "Set Marketing allocation to 30.0% ($150,000)",
            'Company stage set to "Seed"',
        ]  # fmt: skip
        compared = await tried.own("get-benchmark-comparison")
        assert (compared["stage"], compared["comparison"]["marketing"]["current"]) == ("Seed", 30)
        data = await tried.own("get-allocations")
        assert (data["totalBudget"], data["selectedStage"]) == (500000, "Seed")
        with pytest.raises(CapabilityError, match="not found"):
            await view.call("set-company-stage", {"stage": "none"})
        assert (await view.screenshot()).artifact().size_bytes > 10_000
        assert tried.missing == set()


async def test_every_debug_tool_works(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "debug.log"
    async with (
        served(folder, "debug", tmp_path / "out", f"--log-file={log}") as app,
        app.open_view("debug-tool") as view,
    ):
        await check_opened(view, "Debug App")
        tried = Tried(app, view)
        whole = ["application/json"]  # all of the answer, where it has no content
        for kind, types in (
            ("text", whole), ("image", ["image/png"]), ("audio", ["audio/wav"]), ("resource", whole),
            ("resourceLink", whole), ("mixed", ["image/png", "audio/wav"]),
        ):  # fmt: skip
            result = await app.call("debug-tool", {"contentType": kind, "multipleBlocks": False})
            assert [one.mime_type for one in result.artifacts.values()] == types, kind
        assert (await tried.model("debug-tool", {"largeInput": "x" * 1000}))["largeInputLength"] == 1000
        with pytest.raises(CapabilityError):
            await app.call("debug-tool", {"simulateError": True})
        count = (await tried.server("debug-refresh"))["structuredContent"]["counter"]
        assert count >= 8
        logged = await tried.server("debug-log", {"type": "greeting", "payload": "hello"})
        assert logged["structuredContent"]["logged"] and '"hello"' in log.read_text()
        assert tried.missing == set()


async def test_every_pdf_tool_works(folder: Path, tmp_path: Path) -> None:
    """The view answers the model; then the test does, in the place of a second view, with the tools of views."""
    path, other = tmp_path / "a.pdf", tmp_path / "b.pdf"
    path.write_bytes(HELLO)
    other.write_bytes(BLANK)
    async with (
        served(folder, "pdf", tmp_path / "out", "--enable-interact", str(path), str(other)) as app,
        app.open_view("display_pdf", {"url": str(path)}, csp="loose") as view,
    ):
        tried = Tried(app, view)
        assert "a.pdf" in json.dumps(await tried.model("list_pdfs"))
        await eventually(lambda: view.model_context)  # the document is shown
        shown = view.result.data
        assert isinstance(shown, dict)
        uuid = shown["viewUUID"]
        assert "Hello, view" in json.dumps(
            await tried.model("interact", {"viewUUID": uuid, "action": "get_text", "page": 1})
        )
        picture = await app.call("interact", {"viewUUID": uuid, "action": "get_screenshot", "page": 1})
        assert picture.artifact().mime_type == "image/jpeg"
        assert (await tried.own("interact", {"action": "get_document_info"}))["totalPages"] == 1

        read = (await tried.server("read_pdf_bytes", {"url": str(other)}))["structuredContent"]
        assert base64.b64decode(read["bytes"]) == BLANK and not read["hasMore"]
        second = (await tried.model("display_pdf", {"url": str(other)}))["viewUUID"]

        async def answered(action: str, tool: str, answer: dict[str, Any], **more: Any) -> Any:
            """Ask as the model, take the command as the view, answer it, and return the answer of the model."""
            asked = asyncio.create_task(app.call("interact", {"viewUUID": second, "action": action, **more}))
            (command,) = (await tried.server("poll_pdf_commands", {"viewUUID": second}))["structuredContent"][
                "commands"
            ]
            assert not (await tried.server(tool, {"requestId": command["requestId"], **answer})).get("isError")
            return json.dumps((await asked).data)

        pages = {"pages": [{"page": 1, "text": "words of the test"}]}
        assert "words of the test" in await answered("get_text", "submit_page_data", pages, page=1)
        state = json.dumps({"currentPage": 7})
        assert "7" in await answered("get_viewer_state", "submit_viewer_state", {"state": state})
        data = base64.b64encode(HELLO).decode()
        await answered("save_as", "submit_save_data", {"data": data}, path=str(other), overwrite=True)
        assert other.read_bytes() == HELLO
        saved = await tried.server("save_pdf", {"url": str(other), "data": base64.b64encode(BLANK).decode()})
        assert "Saved to" in text_of(saved) and other.read_bytes() == BLANK
        assert tried.missing == set()


async def test_csp_violation_stopping_pdf_in_claude_is_reported(folder: Path, tmp_path: Path) -> None:
    """Its worker may start there. The script that the worker imports may not, and meanwhile a spinner turns."""
    async with pdf_view(folder, tmp_path, host="claude") as view:
        await is_blank(view.frame)
        assert "Loading the script 'data:text/javascript" in view.violations[0]
        assert 'directive: "script-src ' in view.violations[0] and view.model_context is None
