"""Files of artifacts do what a file on the disk does: the same results, or exceptions of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import IO, Any, TypeAlias

import fsspec
import pytest
from hypothesis import given, strategies as st

from tests.support.slow import slow_but
from transports.sync import open_store

CONTENT = b"one\ntwo\r\n\nlast line without an end" + bytes(range(256)) * 4
_Step: TypeAlias = tuple[str, tuple[Any, ...]]

_OFFSETS = st.one_of(st.integers(-50, 2000), st.sampled_from([-(2**40), 2**40, 2**64, len(CONTENT), 1.5, None, "x"]))
_SIZES = st.one_of(st.integers(-2, 2000), st.sampled_from([None, 2**63, 0.5, "x"]))
_BUFFERS = st.integers(0, 1500).map(bytearray)
_STEPS = st.one_of(
    st.tuples(st.just("seek"), st.tuples(_OFFSETS)),
    st.tuples(st.just("seek"), st.tuples(_OFFSETS, st.sampled_from([0, 1, 2, 7, -1, "x"]))),
    st.tuples(st.sampled_from(["read", "read1", "peek", "readline", "readlines"]), st.tuples(_SIZES)),
    st.tuples(st.sampled_from(["readinto", "readinto1"]), st.tuples(_BUFFERS)),
    st.tuples(
        st.sampled_from(
            [
                *("tell", "read", "read1", "readline", "readlines", "__next__", "readable", "seekable", "writable"),
                *("flush", "isatty", "close", "detach", "truncate", "__enter__"),
            ]
        ),
        st.just(()),
    ),
    st.tuples(st.just("write"), st.tuples(st.just(b"x"))),
    st.tuples(st.just("truncate"), st.tuples(st.integers(-1, 5))),
)


def outcome(file: IO[bytes], step: _Step) -> object:
    """The result of a step, or the kinds of its exception that programs look for."""
    name, arguments = step
    copied = tuple(bytearray(one) if isinstance(one, bytearray) else one for one in arguments)
    try:
        result = getattr(file, name)(*copied)
    except Exception as error:
        return [kind.__name__ for kind in (OSError, ValueError, TypeError, StopIteration) if isinstance(error, kind)]
    if name == "__enter__":
        return result is file
    if name == "detach":
        result.close()
        return "detached"
    return result, *(bytes(one) for one in copied if isinstance(one, bytearray))


_Open: TypeAlias = Callable[[], IO[bytes]]
OPENERS = ["ref.open()", "ref.open() of an empty artifact", "artifact://"]


@pytest.fixture(scope="module", params=slow_but(OPENERS, "ref.open()", "artifact://"))
def openers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[_Open, _Open]]:
    """How an artifact and a file with the same content are opened."""
    folder = tmp_path_factory.mktemp("files")
    content = b"" if "empty" in request.param else CONTENT
    (folder / "plain").write_bytes(content)
    with open_store(folder / "store") as store:
        ref = store.put_bytes(content, filename="data.bin")
        files = fsspec.filesystem("artifact", store=str(folder / "store"))
        opened: _Open = ref.open if "ref" in request.param else partial(files.open, ref.uri)
        yield opened, lambda: (folder / "plain").open("rb")


@given(steps=st.lists(_STEPS, max_size=12))
def test_artifact_file_behaves_like_plain_file(openers: tuple[_Open, _Open], steps: list[_Step]) -> None:
    files = [make() for make in openers]
    try:
        for step in steps:
            ours, plain = (outcome(file, step) for file in files)
            assert ours == plain
            if plain == "detached":
                return
    finally:
        for file in files:
            with suppress(ValueError):  # it is detached
                file.close()
