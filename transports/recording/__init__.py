"""A conversation with an app in a file, so that tests run without the app (``docs/testing.md``).

* :mod:`.scrub` — what is secret, and what stands in its place.
* :mod:`.entries` — the lines of the file, as models.
* :mod:`.content` — messages as JSON, their content beside the file.
* :mod:`.file` — writing and reading both.
* :mod:`.recorder` — a transport that records another one.
* :mod:`.score` — what was recorded, in the order in which it is to be played again.

:class:`transports.adapters.replay.ReplayTransport` plays it.
"""

from __future__ import annotations

from .file import Recording
from .recorder import Recorder, recording_of

__all__ = ["Recorder", "Recording", "recording_of"]
