"""Adapters between this library's stores and the store of a host program, in both directions.

A host is an agent framework with its own artifact store, such as penguiflow. Its store protocol is that of
docs/requirements.md R2-5.2: ``put_bytes``, ``put_text``, ``get``, ``delete`` and ``exists``.
"""

from ._hosted import HostedStore, StoreForHost
from ._protocol import HostFacade, HostStore, is_host_store

__all__ = ["HostFacade", "HostStore", "HostedStore", "StoreForHost", "is_host_store"]
