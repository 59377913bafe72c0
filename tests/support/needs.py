"""What some tests need and not every machine has."""

from typing import NoReturn

import pytest


def missing(what: str, reason: object) -> NoReturn:
    """Skip the test that runs."""
    pytest.skip(f"needs {what}: {reason}")
