"""Apps and WebMCP tools in a page of a real browser.

* :mod:`._transport` — the transports of a page; :mod:`._page_transport` — the base of all transports that drive a
  page, with reconnection.
* :mod:`._find`, :mod:`._browser`, :mod:`._process` — find, start, attach to and end a browser; :mod:`._source` — where
  a session's page comes from: browser, profile, context, the caller's own page.
* :mod:`._agent`, :mod:`._channels` — the agent script in a page (``js/``), and the channel to it; :mod:`._frames` — the
  agents and tools in frames.
* :mod:`._content`, :mod:`._downloads` — content between a page and files.
* :mod:`._effects` — side effects of an app: dialogs, prints, downloads, windows.
* :mod:`._evidence` — recordings of a call: trace, video, HAR, console, screenshot.
* :mod:`._page_tools` — HTML to PDF, screenshots; :mod:`._diagnosis` — why a page did not load or is no app.

The names here are those that other rooms use before Playwright is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._browser import Browser as Browser, BrowserLender as BrowserLender
    from ._page_tools import PictureBrowser as PictureBrowser, screenshot_of_url as screenshot_of_url
    from ._source import PageSource as PageSource, StorageState as StorageState
    from ._sync_page import PageRunner as PageRunner, to_async as to_async
    from ._transport import PlaywrightTransport as PlaywrightTransport, WebMcpTransport as WebMcpTransport
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_browser": ("Browser", "BrowserLender"),
            "_page_tools": ("PictureBrowser", "screenshot_of_url"),
            "_source": ("PageSource", "StorageState"),
            "_sync_page": ("PageRunner", "to_async"),
            "_transport": ("PlaywrightTransport", "WebMcpTransport"),
        },
    )
