"""Routing of answers (docs/protocol.md 12, docs/requirements.md R2-4): files go to the store, references take their
places, and what an agent sees stays small.

* :mod:`.router` — :class:`Router`, which does it; :mod:`.layers` finds the files for it, :mod:`.storing` stores them;
  :mod:`.unkept` — what no store keeps.
* :mod:`.policy`, :mod:`.presets`, :mod:`.config` — what is recognised, the policies for well-known servers, those of a
  settings file.
* :mod:`.fields`, :mod:`.paths`, :mod:`.blocks`, :mod:`.sizes` — the layers for configured fields, MCP content blocks
  and long texts.
* :mod:`.references`, :mod:`.result`, :mod:`.guard` — references in answers, :class:`Result`, JSON cut to a size.
* :mod:`.events` — what a transformer is given, and the events of the routing.
* :mod:`.fetch` — :class:`Fetcher`, which brings content into the store.
* :mod:`.inputs` — files that come with a call.
"""

from ..binary.detect import Signature
from ._events import CustomEvent, ObservationClamped, OnRoutingEvent, TransformContext
from ._guard import MAX_BYTES as MAX_BYTES, MIN_BYTES as MIN_BYTES, clamp, json_size as json_size
from ._layers import Fetcher, OnDownload, human_size as human_size
from ._policy import (
    ABP,
    GITHUB,
    TABLEAU,
    AgentLimits,
    FieldRule,
    ResourcePolicy,
    RoutingConfig,
    RoutingPolicy,
    Step,
    Transformer,
    named_preset,
    preset,
)
from ._result import Result
from ._router import (
    Accepted,
    FileLimits,
    GivenFile,
    OpenFile,
    Router,
    accept_files,
    auto_read_safe,
    estimated_tokens,
    is_textual,
    large_file_warning,
)

__all__ = [
    "ABP",
    "GITHUB",
    "TABLEAU",
    "Accepted",
    "AgentLimits",
    "CustomEvent",
    "Fetcher",
    "FieldRule",
    "FileLimits",
    "GivenFile",
    "ObservationClamped",
    "OnDownload",
    "OnRoutingEvent",
    "OpenFile",
    "ResourcePolicy",
    "Result",
    "Router",
    "RoutingConfig",
    "RoutingPolicy",
    "Signature",
    "Step",
    "TransformContext",
    "Transformer",
    "accept_files",
    "auto_read_safe",
    "clamp",
    "estimated_tokens",
    "is_textual",
    "large_file_warning",
    "named_preset",
    "preset",
]
