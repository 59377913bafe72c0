"""Proxy in front of any MCP server (``abp proxy``): the client sees the server, and large content as links
(``docs/proxy.md``).

* :mod:`._messages` — messages as bytes: lines, ids, and one decode function with limits.
* :mod:`._rewriting` — large content of results, stored and replaced; :mod:`._files` — files as arguments of tools.
* :mod:`._exchange` — what passes between a client and its server, one message at a time; :mod:`._duplex` — both
  directions of a client and a server that exchange messages one by one, and the proxy over stdio.
* :mod:`._upstream` — a server that is started; :mod:`._address` — one behind an address.
* :mod:`._serving` — the proxy over HTTP with a server for each session, and :mod:`._reverse` before an address.
* :mod:`._stats` — bytes and pictures from the server and to the client.
"""
