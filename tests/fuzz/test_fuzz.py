"""Every target of the fuzzer for a moment: its corpus, and the same few mutations of it in every run."""

from __future__ import annotations

import logging
import random
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from tests.fuzz.cases import MAX_SECONDS, Slow, read_corpus, run_case
from tests.fuzz.mutation import mutate
from tests.fuzz.targets import TARGETS
from tests.support.processor import measuring, slowness, untraced
from transports.errors import ABPError

pytestmark = pytest.mark.load

#: Bytes that one case may take at a time.
_MAX_MEMORY = 16 << 20


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutations", [4, pytest.param(200, marks=pytest.mark.slow)])  # `make fuzz` takes millions
@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_target_raises_only_own_errors_in_time(name: str, mutations: int) -> None:
    seeds, rng = read_corpus(name), random.Random(name)
    run_all(name, seeds)
    with untraced():  # what they reach, the corpus or another test reaches too
        run_all(name, (mutate(rng, rng.choice(seeds), seeds) for _ in range(mutations)))


def run_all(name: str, inputs: Iterable[bytes]) -> None:
    allowed = MAX_SECONDS * slowness() * measuring()
    for data in inputs:
        try:
            try:
                run_case(TARGETS[name], data, allowed)
            except Slow:  # is it the case, or the machine at the moment?
                run_case(TARGETS[name], data, MAX_SECONDS * slowness() * measuring())
        except Exception as error:
            error.add_note(f"the input: {data!r}")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_target_uses_little_memory(name: str) -> None:
    allowed = MAX_SECONDS * slowness() * measuring()
    for data in read_corpus(name):
        run_case(TARGETS[name], data, allowed)  # what is made once is not the case's
        tracemalloc.start()
        with suppress(ABPError):
            TARGETS[name](data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < _MAX_MEMORY, data


def test_fuzz_runner_reports_foreign_errors_and_slow_cases() -> None:
    def foreign(_: bytes) -> None:
        raise KeyError("name")

    def slow(_: bytes) -> None:
        began = time.process_time()
        while time.process_time() < began + 1.2 * MAX_SECONDS:
            pass

    with pytest.raises(KeyError):
        run_case(foreign, b"")
    with pytest.raises(Slow, match=f"{MAX_SECONDS} are allowed"):
        run_case(slow, b"")
