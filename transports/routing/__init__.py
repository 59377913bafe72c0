"""From an answer to files and references (seeds 000 and 002): what an agent sees is small, what it may need is in the
store."""

from .fetch import Fetcher
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
from .policy import FieldRule, RoutingPolicy, Step, Transformer
from .presets import ABP, GITHUB, TABLEAU
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
]
