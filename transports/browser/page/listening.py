"""Listeners for events of Playwright that never raise."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec

__all__ = ["listen", "listener"]

P = ParamSpec("P")

logger = logging.getLogger("transports.browser")


def listener(handle: Callable[P, object]) -> Callable[P, None]:
    """Return ``handle`` as a listener that logs its exceptions.

    Playwright keeps what a listener raised and raises it in the *next* command, which is that of another call. A fault
    of ours in one event must cost that event only.
    """

    @functools.wraps(handle)
    def listening(*args: P.args, **options: P.kwargs) -> None:
        try:
            handle(*args, **options)
        except Exception:
            logger.exception("an event of the page could not be handled; it is ignored")

    return listening


def listen(source: Any, event: str, handle: Callable[[Any], object]) -> None:
    """Let ``handle``, as a :func:`listener`, hear an event of Playwright's ``source`` for as long as that lives."""
    source.on(event, listener(handle))
