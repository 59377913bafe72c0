"""One connection to one app: connect, handshake, calls, events, resources.

* :mod:`.connect` — which transport reaches which target; :mod:`.plugins` finds those of other distributions.
* :mod:`.settings` — the environment variables.
* :mod:`.session` — :class:`~.session.Session`, the connected app.
* :mod:`.handshake` — ``initialize``, the manifest, changes of capabilities.
* :mod:`.calls` — attempts, repetition, cancellation.
* :mod:`.inbox` — messages from the app, each to the call or the callback that it belongs to.
* :mod:`.events` — typed events and their listeners; :mod:`.callbacks` runs a user's functions.
* :mod:`.resources` — resources of an MCP server.
"""
