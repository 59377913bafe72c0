"""Stores of a host program: a host's own store as one of ours, and one of ours as the host's.

A host here is an agent framework with an artifact store of its own, such as penguiflow. Its store protocol is that of
docs/requirements.md R2-5.2: ``put_bytes``, ``put_text``, ``get``, ``delete`` and ``exists``.
"""

from ._hosted import HostedStore, StoreForHost
from ._protocol import HostFacade, HostStore, is_host_store

__all__ = ["HostFacade", "HostStore", "HostedStore", "StoreForHost", "is_host_store"]
