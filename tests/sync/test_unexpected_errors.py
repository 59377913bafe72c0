"""The thread of the blocking API meets what nobody expects: nobody waits for it for ever."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.eventually import eventually
from transports import ABPError, MemoryTransport
from transports.sync import connect
from transports.sync._bridge import Background


async def answer() -> int:
    return 1


def in_thread(work: Callable[[], object]) -> list[object]:
    """Return the result or the exception of work that may hang, and fail if it does."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"
    return outcome


def test_loop_start_failure_raises_and_next_call_starts_new_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing() -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    background = Background()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.events, "new_event_loop", failing)
        (error,) = in_thread(lambda: background.run(answer()))
    assert isinstance(error, ABPError) and "too many open files" in error.message
    assert in_thread(lambda: background.run(answer())) == [1]


class NotClosing(MemoryTransport):
    async def aclose(self) -> None:
        await super().aclose()
        raise KeyError("cannot be closed")


async def test_unclosed_session_that_fails_to_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = await asyncio.to_thread(connect("memory:", transport=NotClosing({}), store="none:").open)
    with caplog.at_level(logging.ERROR), pytest.warns(ResourceWarning, match="was not closed"):
        del app
        gc.collect()
        await eventually(lambda: "a forgotten object did not close: KeyError('cannot be closed')" in caplog.text)
