"""Packages that only an extra of the distribution installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtra(ImportError):
    """Raised for a package of an extra that is missing, or too old."""


@contextmanager
def needing(package: str, extra: str) -> Iterator[None]:
    """Raise :class:`MissingExtra`, which names the extra, if a block cannot import ``package``."""
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        message = f"{package} is needed ({error}); install it: pip install 'abp-transports[{extra}]'"
        raise MissingExtra(message, name=error.name) from error
