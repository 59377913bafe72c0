"""From an answer to files and references (seed 000): what an agent sees is small, what it may need is in the store."""

from .fetch import Fetcher
from .result import Result
from .router import Router

__all__ = ["Fetcher", "Result", "Router"]
