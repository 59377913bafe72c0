"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (docs/protocol.md 6.5)."""

from .harness import HARNESS_ORIGIN, HarnessSite
from .transport import PostMessageTransport

__all__ = ["HARNESS_ORIGIN", "HarnessSite", "PostMessageTransport"]
