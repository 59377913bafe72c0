"""Records a conversation with an app in a file, so that tests run without the app (``docs/testing.md``).

* :mod:`.entries` — the lines of the file, as models; errors as lines, and back.
* :mod:`.content` — messages as JSON, their content beside the file.
* :mod:`.file` — writing and reading both.
* :mod:`.recorder` — a transport that records another one; :mod:`.tee` copies content on its way.
* :mod:`.replay` — :class:`~.replay.ReplayTransport` plays a recording; :mod:`.page_tools` — both with a page's tools.
* :mod:`.discovery` — the manifest of a page that was read meanwhile.
* :mod:`.script` — the recorded operations, found by what was asked;
  :mod:`.replay_progress` — how far a replay has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy_names
from ._file import Recording
from ._recorder import Recorder, record_transport, replay_transport as replay_transport

if TYPE_CHECKING:
    from ._replay import ReplayTransport as ReplayTransport
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_replay": ("ReplayTransport",),
        },
    )

__all__ = ["Recorder", "Recording", "record_transport"]
