"""Routing of answers (docs/protocol.md 12, docs/requirements.md R2-4): files go to the store, references take their
places, and an agent's view stays small.

* :mod:`.router` — :class:`Router`: stores files and JSON of an answer; also files that are given with a call.
* :mod:`.layers` — search for files in an answer; :class:`Fetcher`, which brings their content.
* :mod:`.policy` — :class:`RoutingPolicy`, presets for well-known servers, the table ``[routing]`` of a settings file.
* :mod:`.result` — :class:`Result`, previews of long texts; :mod:`.guard` — JSON cut to a size.
* :mod:`.events` — events of the routing, and the context of a transformer.
"""

from ..binary.detect import Signature
from .events import CustomEvent, ObservationClamped, OnRoutingEvent, TransformContext
from .guard import clamp
from .layers import Fetcher, OnDownload
from .policy import (
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
from .result import Result
from .router import (
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
