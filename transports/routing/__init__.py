"""Routing of answers (docs/protocol.md 12, docs/requirements.md R2-4): files go to the store, references take their
places, and an agent's view stays small.

* :mod:`._router` — :class:`Router`: stores files and JSON of an answer; also files that are given with a call.
* :mod:`._layers` — search for files in an answer; :class:`Fetcher`, which brings their content.
* :mod:`._policy` — :class:`RoutingPolicy`, presets for well-known servers, the table ``[routing]`` of a settings file.
* :mod:`._result` — :class:`Result`, previews of long texts; :mod:`._guard` — JSON cut to a size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names
from ..protocol._find_content import Signature

if TYPE_CHECKING:
    from ._guard import MAX_BYTES as MAX_BYTES, MIN_BYTES as MIN_BYTES, clamp, json_size as json_size
    from ._layers import Fetcher, OnDownload, human_size as human_size, match_fields as match_fields
    from ._policy import (
        ABP,
        GITHUB,
        TABLEAU,
        AgentLimits,
        CustomEvent,
        FieldRule,
        ObservationClamped,
        OnRoutingEvent,
        ResourcePolicy,
        RoutingConfig,
        RoutingPolicy,
        Step,
        TransformContext,
        Transformer,
        named_preset,
        preset,
    )
    from ._result import Result as Result, answered_files as answered_files
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
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_guard": (
                "MAX_BYTES",
                "MIN_BYTES",
                "clamp",
                "json_size",
            ),
            "_layers": (
                "Fetcher",
                "OnDownload",
                "human_size",
                "match_fields",
            ),
            "_policy": (
                "ABP",
                "AgentLimits",
                "CustomEvent",
                "FieldRule",
                "GITHUB",
                "ObservationClamped",
                "OnRoutingEvent",
                "ResourcePolicy",
                "RoutingConfig",
                "RoutingPolicy",
                "Step",
                "TABLEAU",
                "TransformContext",
                "Transformer",
                "named_preset",
                "preset",
            ),
            "_result": (
                "Result",
                "answered_files",
            ),
            "_router": (
                "Accepted",
                "FileLimits",
                "GivenFile",
                "OpenFile",
                "Router",
                "accept_files",
                "auto_read_safe",
                "estimated_tokens",
                "is_textual",
                "large_file_warning",
            ),
        },
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
