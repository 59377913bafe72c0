"""Packages that only an extra of the distribution installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing(package: str, extra: str) -> Iterator[None]:
    """Let the :class:`ImportError` of a block that imports ``package`` name the extra that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{package} is needed ({error}); install it: pip install 'abp-transports[{extra}]'"
        raise ImportError(message, name=error.name) from error
