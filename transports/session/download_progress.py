"""Progress of a call while the files behind its answer's ``downloadUrl`` are downloaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..protocol.payloads import Progress

__all__ = ["DownloadProgress"]

#: Seconds between two reports of one file, at least; its beginning and its end are always reported.
_INTERVAL = 0.1


class DownloadProgress:
    """Reports the downloads of one call as its progress (docs/protocol.md 10.6): ``stage`` is ``download``, ``status``
    the place of the file in the answer, ``progress`` and ``total`` count bytes. ``report`` gets at most ten reports a
    second of each file. It never raises."""

    def __init__(self, report: Callable[[Progress], None], call: str) -> None:
        self._report = report
        self._call = call
        self._place: str | None = None
        self._last = 0.0

    def __call__(self, place: str, received: int, expected: int | None) -> None:
        """Report that ``received`` of ``expected`` bytes are there of the file at ``place``."""
        from ..protocol.payloads import Progress  # late, as it loads pydantic

        now = time.monotonic()
        if place == self._place and received != expected and now - self._last < _INTERVAL:
            return
        self._place, self._last = place, now
        self._report(
            Progress(call=self._call, stage="download", status=place or None, progress=received, total=expected)
        )
