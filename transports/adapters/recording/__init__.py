"""Recordings of conversations with an app, so that tests run without the app (``docs/testing.md``).

* :mod:`.file` — the file format: lines of JSON, content beside the file, reader and writer.
* :mod:`.recorder` — a transport that records another one.
* :mod:`.replay` — a transport that plays a recording.
"""

from __future__ import annotations

from .file import Recording
from .recorder import Recorder, record_transport

__all__ = ["Recorder", "Recording", "record_transport"]
