"""Pages that turn on the kit: they look for its agent, and change what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import app_page, reach_without_cdp, serve_page
from tests.support.processor import BOUND, longest_turn
from tests.support.slow import slow_but
from transports import Browser, PlaywrightTransport, ProtocolError, connect

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

APP = app_page(
    """
  alive: () => [],
  many: ({ count }) => ({ rows: Array(count).fill([]) }),
  // What the agent says of the content in its reply is this.
  reply: ({ rest }) => {
    Object.prototype.toJSON = function () {
      if (!Object.hasOwn(this, "binaries")) return this;
      delete Object.prototype.toJSON;
      return rest;
    };
    return { content: new Uint8Array(10), more: 1 };
  },
  event: ({ event }) => (forge(event, () => __abp_progress({})), 0),
  digits: ({ digits }) => (__abp_progress({ operationId: "x", progress: 10n ** BigInt(digits) }), 0),""",
    before="""
const forge = (value, work) => {
  Array.prototype.toJSON = () => { delete Array.prototype.toJSON; return value; };
  return work();
};""",
)


#: Some of what a page would have the agent say; tests/playwright/test_received.py has all.
_REPLIES: list[object] = [None, {"binaries": [[["b"], "base64", "AAAA"]]}, {"binaries": {}}, {"warnings": 1}]
_EVENTS: list[object] = [7, [], ["print", {}], ["clipboard", {"size": -1}], ["submitting", []], ["no such kind", {}]]


@pytest.mark.parametrize("way", slow_but(["cdp", "evaluate"], "cdp"))
async def test_page_cannot_forge_events_or_replies(
    browser: Browser, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "evaluate":
        reach_without_cdp(monkeypatch)
    async with (
        serve_page(APP) as url,
        connect(url, transport=PlaywrightTransport(url, browser=browser), store=tmp_path) as app,
    ):
        for event in _EVENTS:
            await app.call("event", {"event": event})
            assert (await app.call("alive")).data == [], event
        await app.call("digits", {"digits": 5000})
        assert (await app.call("alive")).data == []
        for reply in _REPLIES:
            assert (await app.call("reply", {"rest": reply})).artifact().size_bytes == 10, reply
            assert (await app.call("alive")).data == [], reply


@pytest.mark.slow
async def test_answer_with_many_values_does_not_block_and_too_many_is_rejected(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        serve_page(APP) as url,
        connect(url, transport=PlaywrightTransport(url, browser=browser), store=tmp_path) as app,
    ):
        await app.call("many", {"count": 1000})
        with longest_turn() as turn:
            for count in (30_000, 499_000):  # as it comes with the reply, and as content does
                assert (await app.call("many", {"count": count})).artifacts
            with pytest.raises(ProtocolError, match="more than 1,000,000 values and names") as caught:
                await app.call("many", {"count": 501_000})
            assert caught.value.code == "TOO_LARGE"
        assert turn.seconds < BOUND
