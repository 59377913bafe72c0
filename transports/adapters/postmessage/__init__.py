"""The postMessage transport: an app made to be embedded, in an iframe of a harness page (docs/protocol.md 6.5)."""

from ._transport import HARNESS_ORIGIN, HarnessSite, PostMessageTransport

__all__ = ["HARNESS_ORIGIN", "HarnessSite", "PostMessageTransport"]
