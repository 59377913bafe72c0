"""Drives a browser and its pages.

* :mod:`.process` — find, start, attach to and end a browser.
* :mod:`.page` — the agent script in a page, and the channel to it.
* :mod:`.transfer` — move content between a page and files.
* :mod:`.effects` — side effects of an app: dialogs, prints, downloads, windows.
* :mod:`.source` — where a session's page comes from; :mod:`.transport` — the base of the transports that drive one.
* :mod:`.tools` — HTML to PDF, screenshots; :mod:`.reconnect` — open a lost page again.
"""
