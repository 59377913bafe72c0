"""The look of a view: whether its document shows anything, and where its scripts cannot be parsed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

if TYPE_CHECKING:
    from playwright.async_api import Frame

#: Seconds that a document has to stay the same, and the longest wait for that.
_QUIET, _LONGEST = 0.3, 3.0
#: Seconds beyond the wait after which a page that does not answer is given up.
_GRACE = 2.0
_LOOK = """async ({ quiet, longest }) => {
  await new Promise((done) => {
    const isTurning = () => document.getAnimations().some((one) => one.playState === "running"); // it loads something
    const still = () => (isTurning() ? changed() : done());
    let timer = setTimeout(still, quiet);
    const changed = () => { clearTimeout(timer); timer = setTimeout(still, quiet); };
    const all = { subtree: true, childList: true, attributes: true, characterData: true };
    new MutationObserver(changed).observe(document, all);
    setTimeout(done, longest);
  });
  const DRAWN = "img,canvas,svg,video,audio[controls],iframe,object,embed,input,select,textarea,button,progress,meter";
  const VISIBLE = { opacityProperty: true, visibilityProperty: true };
  const shows = (root) => {
    if ((root.body ?? root.host ?? root).innerText?.trim()) return true;
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot && shows(element.shadowRoot)) return true;
      const box = element.getBoundingClientRect();
      if (!box.width || !box.height || !element.checkVisibility(VISIBLE)) continue;
      if (element.matches(DRAWN)) return true;
      const style = getComputedStyle(element);
      if (element !== document.body && element !== document.documentElement
          && (style.backgroundImage !== "none" || parseFloat(style.borderTopWidth) > 0)) return true;
      if (element.getRootNode() !== document && element.textContent.trim()) return true;
    }
    return false;
  };
  return shows(document);
}"""


async def is_blank(frame: Frame) -> bool:
    """Return whether the document in a frame shows nothing: no text, picture, control or border.

    First waits until the document has stayed the same for 0.3 s and moves nothing, for three seconds at most. One that
    cannot be looked at, since its script never ends or it has gone, counts as blank."""
    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_LONGEST + _GRACE):
            return await frame.evaluate(_LOOK, {"quiet": _QUIET * 1000, "longest": _LONGEST * 1000}) is not True
    return True


async def syntax_errors(frame: Frame) -> dict[str, int]:
    """Return the errors of the scripts in a frame, each with its line in the document, from 1.

    Playwright reports an error of the syntax without its place, Chromium knows it. Other browsers give none."""
    line_of_error: dict[str, int] = {}

    def note(event: Any) -> None:
        details = event["exceptionDetails"]
        text = str(details.get("exception", {}).get("description", "")).partition("\n")[0]
        line_of_error[text] = details["lineNumber"] + 1

    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_GRACE):
            session = await frame.page.context.new_cdp_session(frame)
            session.on("Runtime.exceptionThrown", note)
            await session.send("Runtime.enable")  # which repeats what was thrown before
            await session.detach()
    return line_of_error
