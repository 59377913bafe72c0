"""ABP without I/O, except that a local file is opened when it is read.

Its names load when they are first used: pydantic takes longer to import than the rest of the kit.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
