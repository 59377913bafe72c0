"""Blocking views of MCP servers, with Playwright's frame in blocking form."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from ..artifacts._ref import ArtifactRef
from ..session._views import View as AsyncView
from ._bridge import Runner, with_docstring_of
from ._session import Session

if TYPE_CHECKING:
    from playwright.sync_api import (  # type: ignore[attr-defined]  # the assertions are not in its __all__
        Frame,
        Locator,
        LocatorAssertions,
        Page,
        PageAssertions,
    )

    from ..mcp.views._host import DisplayMode, ViewRequest
    from ..routing._result import Result


class View(Session):
    """Blocking session with a view, made by :meth:`Session.open_view`; see :class:`transports.View`."""

    wrapped: AsyncView

    @with_docstring_of(AsyncView.update)
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

    @with_docstring_of(AsyncView.send_input)
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
        """The view's frame, with the methods of ``playwright.sync_api``: ``view.frame.get_by_role("button").click()``.

        Assertions about it are those of :func:`expect`."""
        return cast("Frame", BlockingPlaywright(self.wrapped.frame, self._runner))

    @property
    def requests(self) -> Sequence[ViewRequest]:
        """The last 1,000 requests of each kind of the view to its host, in order."""
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
        """Warnings about the view: files and dialogs that were refused, errors of its scripts, forgotten requests."""
        return self.wrapped.warnings


@overload
def expect(actual: Locator, message: str | None = None) -> LocatorAssertions: ...
@overload
def expect(actual: Page, message: str | None = None) -> PageAssertions: ...
def expect(actual: Locator | Page, message: str | None = None) -> LocatorAssertions | PageAssertions:
    """Return Playwright's assertions about a locator of :attr:`View.frame`, or about anything of
    ``playwright.sync_api``::

        expect(view.frame.get_by_role("heading")).to_have_text("Hello", timeout=2000)

    They wait until they hold, 5 seconds by default. ``playwright.sync_api.expect`` refuses objects of a blocking view.
    """
    from playwright import async_api, sync_api

    if not isinstance(actual, BlockingPlaywright):
        return sync_api.expect(actual, message)
    assertions: object = async_api.expect(cast("async_api.Locator", actual._wrapped), message)
    return cast("LocatorAssertions", BlockingPlaywright(assertions, actual._runner))


class _NamesExpect(type):
    """Metaclass that puts advice in the error of ``playwright.sync_api.expect``, which shows the type it refuses."""

    def __repr__(cls) -> str:
        return f"{super().__repr__()}; use the expect of transports.sync"


class BlockingPlaywright(metaclass=_NamesExpect):
    """An object of ``playwright.async_api``, whose coroutine functions block, and which gives such objects."""

    def __init__(self, wrapped: object, runner: Runner) -> None:
        self._wrapped = wrapped
        self._runner = runner

    def __repr__(self) -> str:
        return f"<blocking {self._wrapped!r}>"

    def __getattr__(self, name: str) -> object:
        """Return an attribute in blocking form: a method that waits, a wrapped object, or a plain value."""
        attribute = getattr(self._wrapped, name)
        if not inspect.ismethod(attribute):
            return self._wrap_value(attribute)

        def call(*args: object, **kwargs: object) -> object:
            from playwright.async_api import Error

            __tracebackhide__ = True
            async_args = [_unwrap_value(value) for value in args]
            async_kwargs = {key: _unwrap_value(value) for key, value in kwargs.items()}
            try:
                result: Any = attribute(*async_args, **async_kwargs)
                if inspect.iscoroutine(result):
                    result = self._runner.run(result)
                return self._wrap_value(result)
            except (AssertionError, Error) as error:
                raise error.with_traceback(None)  # noqa: B904 - it is the same error, without Playwright's frames

        return call

    def _wrap_value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._wrap_value(item) for item in value]
        if type(value).__module__.startswith("playwright.async_api"):
            return BlockingPlaywright(value, self._runner)
        return value


def _unwrap_value(value: object) -> object:
    return value._wrapped if isinstance(value, BlockingPlaywright) else value
