"""Proxy in front of any MCP server (``abp proxy``): the client sees the server, and large content as links
(``docs/proxy.md``).

* :mod:`._lines` — messages of any length in little memory; :mod:`._outlines` — the beginning of long JSON, and
  messages without their long lists and objects.
* :mod:`._rewriting` — large content of results, stored and replaced.
* :mod:`._relay` — both directions of one client: open requests, artifacts, the server's restart; :mod:`._files` — files
  as arguments of tools.
* :mod:`._process`, :mod:`._address` — servers that are started, and servers behind an address.
* :mod:`._running`, :mod:`._serving` — the proxy for a client that starts it, and over HTTP.
* :mod:`._stats` — bytes from the server and to the client.
"""
