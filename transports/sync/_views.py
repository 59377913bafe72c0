"""Blocking views of MCP servers. Apart, since they need the extra ``[mcp]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from .. import session
from ._bridge import described
from ._session import Session

if TYPE_CHECKING:
    from playwright.async_api import Frame

    from ..adapters.views import DisplayMode, ViewRequest
    from ..artifacts import ArtifactRef
    from ..routing import Result


class View(Session):
    """Blocking session with a view, made by :meth:`Session.open_view`. The coroutines of :attr:`frame` run in the
    session's loop: ``transports.sync.SHARED.run(view.frame.title())``."""

    wrapped: session.View

    @described(session.View.update)
    def update(
        self,
        *,
        theme: Literal["light", "dark"] | None = None,
        locale: str | None = None,
        timezone: str | None = None,
        display_mode: DisplayMode | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Update as :meth:`transports.View.update`, whose docstring replaces this one."""
        self._runner.run(
            self.wrapped.update(theme=theme, locale=locale, timezone=timezone, display_mode=display_mode, size=size)
        )

    @described(session.View.send_input)
    def send_input(self, partial: Mapping[str, object]) -> None:
        """Send as :meth:`transports.View.send_input`, whose docstring replaces this one."""
        self._runner.run(self.wrapped.send_input(partial))

    @property
    def files(self) -> Sequence[ArtifactRef]:
        """Files that the view handed out while no call was under way."""
        return self.wrapped.files

    @property
    def result(self) -> Result:
        """The result of the tool that opened the view."""
        return self.wrapped.result

    @property
    def frame(self) -> Frame:
        """The view's frame, of ``playwright.async_api``, for locators."""
        return self.wrapped.frame

    @property
    def requests(self) -> Sequence[ViewRequest]:
        """The last 1,000 requests of the view to its host, in order."""
        return self.wrapped.requests

    @property
    def model_context(self) -> Mapping[str, object] | None:
        """The last context that the view gave its model, or ``None``."""
        return self.wrapped.model_context

    @property
    def violations(self) -> Sequence[str]:
        """Reports of the browser about what the view's policy forbids, at most 100."""
        return self.wrapped.violations

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the view: files that were refused, errors of its scripts, requests that are not remembered."""
        return self.wrapped.warnings
