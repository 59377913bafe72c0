"""From an answer to files and references (seeds 000 and 002): what an agent sees is small, what it may need is in the
store."""

from .fetch import Fetcher
from .guard import clamp
from .policy import FieldRule, RoutingPolicy, Step, Transformer
from .presets import ABP, GITHUB, TABLEAU
from .result import Result
from .router import Router

__all__ = [
    "ABP",
    "GITHUB",
    "TABLEAU",
    "Fetcher",
    "FieldRule",
    "Result",
    "Router",
    "RoutingPolicy",
    "Step",
    "Transformer",
    "clamp",
]
