"""Programs that read files of apps in processes with limits: the first page of a PDF, its text, a smaller picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ._reader_process import (
        MAX_SOURCE as MAX_SOURCE,
        PICTURES as PICTURES,
        run_reader as run_reader,
        run_reader_now as run_reader_now,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_reader_process": (
                "MAX_SOURCE",
                "PICTURES",
                "run_reader",
                "run_reader_now",
            ),
        },
    )
