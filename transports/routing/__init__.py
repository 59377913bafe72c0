"""Routing of answers (docs/protocol.md 12, docs/requirements.md R2-4): files go to the store, references take their
places, and what an agent sees stays small.

* :mod:`.router` — :class:`Router`, which does it.
* :mod:`.policy`, :mod:`.presets` — what is recognised, and the policies for well-known servers.
* :mod:`.fields`, :mod:`.blocks`, :mod:`.sizes` — the layers for configured fields, MCP content blocks and long texts.
* :mod:`.references`, :mod:`.result`, :mod:`.guard` — references in answers, :class:`Result`, JSON cut to a size.
* :mod:`.fetch` — :class:`Fetcher`, which brings content into the store.
* :mod:`.inputs` — files that come with a call.
"""

from .fetch import Fetcher, OnDownload
from .guard import clamp
from .inputs import (
    Accepted,
    FileLimits,
    GivenFile,
    accept_files,
    auto_read_safe,
    estimated_tokens,
    is_textual,
    large_file_warning,
)
from .policy import FieldRule, ResourcePolicy, RoutingPolicy, Step, Transformer
from .presets import ABP, GITHUB, TABLEAU, preset
from .result import Result
from .router import Router

__all__ = [
    "ABP",
    "GITHUB",
    "TABLEAU",
    "Accepted",
    "Fetcher",
    "FieldRule",
    "FileLimits",
    "GivenFile",
    "OnDownload",
    "ResourcePolicy",
    "Result",
    "Router",
    "RoutingPolicy",
    "Step",
    "Transformer",
    "accept_files",
    "auto_read_safe",
    "clamp",
    "estimated_tokens",
    "is_textual",
    "large_file_warning",
    "preset",
]
