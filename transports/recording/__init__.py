"""Recordings of conversations with an app, so that tests run without the app (``docs/testing.md``).

* :mod:`._file` — the file format: lines of JSON, content beside the file, reader and writer.
* :mod:`._recorder` — a transport that records another one.
* :mod:`._replay` — a transport that plays a recording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._file import Recording
    from ._recorder import Recorder
    from ._replay import ReplayTransport as ReplayTransport
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_file": ("Recording",),
            "_recorder": ("Recorder",),
            "_replay": ("ReplayTransport",),
        },
    )

__all__ = ["Recorder", "Recording"]
