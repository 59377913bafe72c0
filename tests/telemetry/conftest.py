"""Fixtures of the tests of telemetry."""

from collections.abc import Iterator

import pytest

from tests.support.spans import Collector, collecting


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found
