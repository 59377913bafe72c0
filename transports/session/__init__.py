"""One connection to one app: connect, handshake, calls, events, resources.

* :mod:`.connect` — :func:`~.connect.connect`; :mod:`.targets` — which transport reaches which target; :mod:`.plugins` —
  transports of other distributions.
* :mod:`.settings` — the environment variables; :mod:`.timeouts` — what a timeout may be.
* :mod:`.session` — :class:`~.session.Session`, the connected app; :mod:`.loading` — modules that are imported while it
  opens.
* :mod:`.handshake` — ``initialize``, the manifest, changes of capabilities; :mod:`.connection` — lost and restored.
* :mod:`.caller` — one call from its parameters to its result; :mod:`.handles` — calls that are looked at later.
* :mod:`.calls` — attempts, repetition, cancellation; :mod:`.results` — answers routed into the store.
* :mod:`.event_dispatch` — messages from the app, each to the call, callback and streams that it belongs to.
* :mod:`.events` — typed events and their streams; :mod:`.callbacks` — the user's functions.
* :mod:`.resources` — resources of an MCP server.
"""
