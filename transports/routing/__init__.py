"""Routing of answers (docs/protocol.md 12, docs/requirements.md R2-4): files go to the store, references take their
places, and an agent's view stays small.

* :mod:`._router` — :class:`Router`: stores files and JSON of an answer.
* :mod:`._given_files` — files that are given with a call.
* :mod:`._layers` — search for files in an answer; :class:`Fetcher`, which brings their content.
* :mod:`._policy` — :class:`RoutingPolicy`, presets for well-known servers, the table ``[routing]`` of a settings file.
* :mod:`._result` — :class:`Result`, previews of long texts; :mod:`._guard` — JSON cut to a size.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
