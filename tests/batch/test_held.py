"""Sessions that are held open between calls."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from transports.batch.pool._fleet import HeldSession
from transports.errors import ConnectFailed


async def test_a_session_that_neither_opens_nor_ends_is_named_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transports._internal.tasks._GRACE", 0.01)

    class Deaf:
        async def __aenter__(self) -> None:
            end = asyncio.get_running_loop().create_future()
            ended.append(end)
            while not end.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(end)

        async def __aexit__(self, *_: object) -> None: ...

    ended: list[asyncio.Future[None]] = []
    held = HeldSession("http://user:hidden@app.example/?token=hidden", Deaf())  # type: ignore[arg-type]
    with pytest.raises(ConnectFailed, match=r"app\.example.* did not open") as raised:
        await held.opened(0.01)
    ended[0].set_result(None)
    await held.aclose()
    assert "hidden" not in raised.value.message
