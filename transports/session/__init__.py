"""One connection to one app: connect, handshake, calls, events, resources.

* :mod:`._connect` — :func:`~._connect.connect`; :mod:`._targets` — the transport for a target, own or of a plug-in.
* :mod:`._settings` — environment variables, the settings file ``abp.toml`` and its trust; :mod:`._app_tables` — models.
* :mod:`._named_apps` — apps of the settings file; :mod:`._secrets` — its secrets, guarded in a session.
* :mod:`._session` — :class:`~._session.Session`, the connected app.
* :mod:`._connection` — the handshake, the manifest, changes of capabilities, reconnection.
* :mod:`._call`, :mod:`._attempts`, :mod:`._results` — a call, how it is sent, and where its answer is stored.
* :mod:`._dispatch` — delivery of the app's messages to calls, callbacks and streams; :mod:`._events` — typed events.
* :mod:`._evidence`, :mod:`._call_evidence` — the choice of evidence, and its recording around each call.
* :mod:`._resources` — resources of an MCP server; :mod:`._views` — views of its tools, as sessions.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
