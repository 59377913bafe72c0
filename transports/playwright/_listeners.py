"""Listeners of Playwright's events. This module loads without Playwright."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec

logger = logging.getLogger("transports.playwright")

P = ParamSpec("P")


def listener(handle: Callable[P, object]) -> Callable[P, None]:
    """Return ``handle`` as a listener that logs its exceptions.

    Playwright stores the exception of a listener and raises it in the *next* command, which belongs to another call. A
    bug here in one event must cost that event only.
    """

    @functools.wraps(handle)
    def listening(*args: P.args, **options: P.kwargs) -> None:
        try:
            handle(*args, **options)
        except Exception:
            logger.exception("an event of the page could not be handled; it is ignored")

    return listening


def listen(source: Any, event: str, handle: Callable[[Any], object]) -> None:
    """Register ``handle``, as a :func:`listener`, for an event of Playwright's ``source``, as long as ``source``
    lives."""
    source.on(event, listener(handle))
