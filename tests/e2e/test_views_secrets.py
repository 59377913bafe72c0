"""Views of a server whose session knows secrets: a view is shown names, never values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.mcp_servers import target
from transports import Browser, connect
from transports._internal.privacy._secrets import KNOWN_SECRETS, give

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CANARY = "canary-7f3a-value"


@pytest.fixture(autouse=True)
def value_that_the_user_has_used() -> Iterator[None]:
    give(None, "CRM", CANARY)
    yield
    KNOWN_SECRETS.forget()


async def test_a_view_is_not_shown_the_value_of_a_secret(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    (config := tmp_path / "abp.toml").write_text(
        '[secrets.CRM]\nenv = "CANARY"\norigins = ["http://app.test"]\n', encoding="utf-8"
    )
    file = tmp_path / "views.jsonl"
    async with (
        connect(target("views"), browser=browser, store=tmp_path / "store", config=config, record=file) as app,
        app.open_view("board", {"note": CANARY}) as view,
    ):
        heard = await view.frame.evaluate("heard")
        assert heard[0]["params"]["arguments"] == {"note": "${SECRET:CRM}"}
        assert heard[1]["params"]["content"][0]["text"] == "n is 1 ${SECRET:CRM}"
        asked = {"name": "secret", "arguments": {"key": CANARY}}
        answer = await view.frame.evaluate("(asked) => rpc('tools/call', asked)", asked)
        assert answer["result"]["content"][0]["text"] == "for views: ${SECRET:CRM}"
        named = {"name": "secret", "arguments": {"key": "${SECRET:CRM}"}}  # a view cannot have a value sent
        answer = await view.frame.evaluate("(asked) => rpc('tools/call', asked)", named)
        assert answer["result"]["content"][0]["text"] == "for views: ${SECRET:CRM}"
    kept = [path.read_bytes() for path in tmp_path.glob("views.jsonl*/**/*") if path.is_file()]
    assert not [content for content in [file.read_bytes(), *kept] if CANARY.encode() in content]
