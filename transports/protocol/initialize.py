"""The first request of a session (docs/protocol.md 2.2), and the version of this package in it."""

from __future__ import annotations

from collections.abc import Sequence

from .messages import PROTOCOL_VERSION

__all__ = ["initialize_params", "package_version"]


def package_version() -> str:
    """Return the version of this package, or "0" where it runs from a source tree that was never installed."""
    import importlib.metadata  # late: it takes 20 ms to load

    try:
        return importlib.metadata.version("abp-transports")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def initialize_params(agent: str = "abp-transports", *, capabilities: Sequence[str] = ()) -> dict[str, object]:
    """Return the payload of ``initialize``: who asks, the protocol's version, the features of this client, and the
    names of the capabilities that are wanted, where not all are."""
    params: dict[str, object] = {
        "agent": {"name": agent, "version": package_version()},
        "protocolVersion": PROTOCOL_VERSION,
        "features": {"notifications": True, "progress": True, "elicitation": True},
    }
    if capabilities:
        params["requestedCapabilities"] = list(capabilities)
    return params
