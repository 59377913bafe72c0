"""A blocking browser, which several sessions may share."""

from __future__ import annotations

from pathlib import Path

from ..browser.process import launch
from .bridge import blocking, taking_parameters_of
from .lifetime import Resource, closing

__all__ = ["Browser"]


class Browser(Resource[launch.Browser]):
    """A Chromium of our own that several sessions may share; see :class:`transports.Browser`::

    with Browser() as browser:
        with connect(url, browser=browser) as app: ...
    """

    @taking_parameters_of(launch.Browser)
    def __init__(self, wrapped: launch.Browser) -> None:
        super().__init__(wrapped)

    load_extension = blocking(launch.Browser.load_extension)
    responds = blocking(launch.Browser.responds)
    resident_bytes = blocking(launch.Browser.resident_bytes)
    restart = blocking(launch.Browser.restart)
    ensure_running = blocking(launch.Browser.ensure_running)
    close = closing(launch.Browser.aclose)

    @property
    def version(self) -> str:
        """The browser's version, as it says itself."""
        return self.wrapped.version

    @property
    def attached(self) -> bool:
        """Whether the browser is somebody else's, and keeps running after :meth:`aclose`."""
        return self.wrapped.attached

    @property
    def closed(self) -> bool:
        """Whether the browser is not open: not yet, or not any more. One that died is open, as it is started again."""
        return self.wrapped.closed

    @property
    def after_restart(self) -> str:
        """What follows the end of the browser, as error messages say it: whether its sessions keep what it held."""
        return self.wrapped.after_restart

    @property
    def shares_context(self) -> bool:
        """Whether all sessions share one context, and so their cookies and storage."""
        return self.wrapped.shares_context

    @property
    def folder(self) -> Path:
        """The folder of its temporary files."""
        return self.wrapped.folder
