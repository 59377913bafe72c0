"""Values as JavaScript's own encoders spell them, in the browser."""

from __future__ import annotations

import random

import pytest

from tests.support.slow import slow_but
from tests.support.spelled import JAVASCRIPT, readings
from transports import Browser
from transports._internal.masking import KnownSecrets

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ALL_ASCII = "".join(map(chr, range(0x20, 0x7F)))


def values(count: int) -> list[str]:
    """Values of all characters of ASCII, and of others, the same ones each time."""
    chosen = random.Random(31)
    alphabets = [ALL_ASCII, "!'()*~\"<>&%+\\/ ", ALL_ASCII + "äéß€漢😀"]
    drawn = ["".join(chosen.choices(one, k=chosen.randint(8, 30))) for one in alphabets for _ in range(count)]
    # an address of the browser's own loses spaces at its ends, and steps up in paths
    return [ALL_ASCII, 'O\'Hara (7*~!)+"pass/word" ü😀&9', *(one for one in map(str.strip, drawn) if len(one) >= 8)]


@pytest.mark.parametrize("count", slow_but([10, 60], 10))
async def test_secrets_escaped_by_any_javascript_encoder_are_masked(browser: Browser, count: int) -> None:
    given = values(count)
    page = await browser.playwright.new_page()
    try:
        spelled = {
            name: await page.evaluate(f"(values) => values.map((value) => {expression})", given)
            for name, expression in JAVASCRIPT.items()
        }
    finally:
        await page.close()
    shown = []
    for name, texts in spelled.items():
        for value, text in zip(given, texts, strict=True):
            if name == "path of a URL" and ("\\" in value or "/." in f"/{value}"):
                continue  # which an address does not keep
            known = KnownSecrets()
            known.add("CRM", value)
            said = known.mask_text(f"it said {text}.")
            if "${SECRET:CRM}" not in said or value in set(readings(said, 1)):
                shown.append((name, value, text))
    assert not shown
