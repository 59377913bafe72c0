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

The names here are those that other rooms use before Playwright is loaded, and ``find_browser``.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
