"""Views in the blocking API: the same attributes, and handlers that may use it."""

from __future__ import annotations

from collections.abc import Iterator

import playwright.sync_api
import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.command_line import in_thread
from tests.support.mcp_over_http import views_server
from transports.sync import Session, connect, expect

pytestmark = pytest.mark.browser
ASK = "([method, params]) => rpc(method, params)"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with in_thread(views_server()) as address, connect(address, store=tmp_path_factory.mktemp("views")) as app:
        yield app


def test_view_works_as_sync_context_manager_and_with_expect(app: Session) -> None:
    asked: list[object] = []

    def decide(url: str) -> bool:
        asked.append((url, app.call("links").data))  # in a thread of its own
        return False

    with app.open_view("board", {"n": 2}, on_open_link=decide, theme="dark") as view:
        assert view.info.name == "Board" and isinstance(view.result.data, dict) and view.result.data["n"] == 2
        assert view.call("echo", {"text": "a"}).data == {"text": "a"}
        assert view.call("hands").artifact().filename == "three.bin"
        view.update(theme="light")
        view.send_input({"n": 3})
        link = view.frame.evaluate(ASK, ["ui/open-link", {"url": "https://a.example/"}])
        assert link["result"] == {"isError": True} and len(asked) == 1
        assert [one.kind for one in view.requests] == ["download-file", "open-link"]
        assert view.model_context is None and view.files == () and view.violations == () and len(view.warnings) == 1
        assert view.screenshot().artifact().mime_type == "image/png"
        assert view.render_to_pdf("<p>Hi").artifact().mime_type == "application/pdf"

        heading = view.frame.get_by_role("heading")
        expect(heading).to_have_text("A view")
        expect(heading).not_to_have_text("Another view")
        expect(view.frame.locator("h1").filter(has_text="view").first).to_be_visible()
        expect(view.frame.page).not_to_have_title("A title")
        view.frame.evaluate("setTimeout(() => { document.querySelector('h1').textContent = 'Later' }, 300)")
        expect(heading).to_have_text("Later")
        with pytest.raises(AssertionError, match=r"the heading\n(.|\n)*Sooner(.|\n)*Later"):
            expect(heading, "the heading").to_have_text("Sooner", timeout=100)
        with pytest.raises(ValueError, match=r"Unsupported type: .*; use the expect of transports\.sync"):
            playwright.sync_api.expect(heading)
