"""The errors for pages that are lost, or that could not be opened: what happened, and what follows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import ABPError, BrowserCrashed, ConnectFailed, TransportError, format_seconds
from ..protocol.urls import redact_url
from .page.ended import is_closed
from .process.launch import Browser

__all__ = ["loss_error", "mapping_opening_errors"]


def loss_error(lost: TransportError, browser: Browser | None, *, final: bool) -> TransportError:
    """Return the error for the calls of a session whose page is gone, for the reason in ``lost``.

    ``final`` says that the session is over; otherwise the app is opened again, in ``browser`` if it has one of ours.
    If that has ended, all its sessions are told.
    """
    ended = browser if isinstance(lost, BrowserCrashed) else None
    if ended is not None:
        ended.mark_ended()
    if final:
        return type(lost)(f"{lost.message}; connect again", retryable=False)
    if ended is not None:
        return type(lost)(f"{lost.message}; {ended.after_restart}")
    return type(lost)(f"{lost.message}; the app is opened again")


@contextlib.contextmanager
def mapping_opening_errors(target: str, timeout: float) -> Iterator[None]:
    """Raise errors of ours for those of asyncio and of Playwright while ``target`` is opened.

    Raises :class:`~transports.errors.ConnectFailed` after ``timeout`` seconds, which the caller measures and the
    ``details`` hold, and :class:`~transports.errors.BrowserCrashed` if the browser or its driver ends meanwhile.
    """
    try:
        yield
    except TimeoutError:
        within = f"did not load within {format_seconds(timeout)}"
        message = f"{redact_url(target)} {within}; is it the right address?"
        raise ConnectFailed(message, details={"timeout": timeout}) from None
    except Exception as error:
        if isinstance(error, ABPError) or not is_closed(error):
            raise
        raise BrowserCrashed("the browser ended while the app was opened in it; connect again") from None
