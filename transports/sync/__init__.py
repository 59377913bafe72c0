"""The blocking API: the names of :mod:`transports`, for programs without an event loop.

>>> from transports.sync import connect
>>> with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = app.call("export.pdf", {"html": "<h1>Hi</h1>"}, timeout=30, on_progress=print)

Parameters, results and errors are those of the asynchronous API; errors, results, references and transports are
imported from :mod:`transports`. Ctrl-C during a call cancels the call in the app, as cancelling the awaiting task does
there. Several threads may use one session. Callbacks are plain functions, each run in a thread of its own, or coroutine
functions, which run in the session's loop and must not use this API. ``aclose`` is ``close`` here, ``await connect(…)``
is ``connect(…).open()``. Every object has a ``wrapped``, the asynchronous object that does the work, for options that
need that object.

``connect(page.url, page=page)`` drives a page of ``playwright.sync_api`` (pytest-playwright's ``page``). Its session
works in the page's thread, and only while a call of this API or of Playwright's waits: events arrive only then.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
