"""Browsers, their pages, and the transports that drive an app in a page.

* :mod:`.process` — find, start, attach to and end a browser.
* :mod:`.page` — the agent script in a page, and the channel to it.
* :mod:`.transfer` — content between a page and files: downloads, uploads.
* :mod:`.evidence` — recordings of a call: trace, video, HAR, console, screenshot.
* :mod:`.effects` — side effects of an app: dialogs, prints, downloads, windows.
* :mod:`.source` — the source of a session's page: browser, profile, context, the caller's own page.
* :mod:`.transport` — the base of transports that drive a page, with reconnection; :mod:`.top_page` — the base of those
  whose app is the page itself.
* :mod:`.tools` — HTML to PDF, screenshots; :mod:`.preflight` — a check for a listener before a browser is started.
"""
