"""Client kit for browser apps that speak ABP; every binary result is kept as a verified file.

>>> from transports import connect
>>> async with connect("http://127.0.0.1:8000/") as app:  # doctest: +SKIP
...     result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})

Names are loaded when they are first used: importing the package loads neither Playwright nor aiohttp.
"""

from __future__ import annotations

from ._internal.lazy import attach_stub

_load, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from .protocol.messages import package_version  # late: it looks into the installed distributions

        return package_version()
    return _load(name)
