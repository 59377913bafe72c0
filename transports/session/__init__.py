"""One connection to one app: connect, handshake, calls, events, resources.

* :mod:`.connect` — :func:`~.connect.connect`; :mod:`.targets` — the transport for a target, own or of a plug-in.
* :mod:`.settings` — environment variables, the settings file ``abp.toml`` and its trust; :mod:`.retention_fields`.
* :mod:`.apps`, :mod:`.app_tables` — apps of the settings file; :mod:`.secrets` — its secrets, guarded in a session.
* :mod:`.session` — :class:`~.session.Session`, the connected app.
* :mod:`.connection` — the handshake, the manifest, changes of capabilities, reconnection.
* :mod:`.calls` — attempts, retries, cancellation, handles of calls, results in the store.
* :mod:`.dispatch` — delivery of the app's messages to calls, callbacks and streams; :mod:`.events` — typed events.
* :mod:`.evidence`, :mod:`.call_evidence` — the choice of evidence, and its recording around each call.
* :mod:`.resources` — resources of an MCP server.
"""
