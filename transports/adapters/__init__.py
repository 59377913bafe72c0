"""Transports: one package or module for each way to reach an app. They do not import each other.

* :mod:`.playwright` — a page in a real browser; :mod:`.postmessage` — an app embedded in an iframe.
* :mod:`.websocket` — an app behind a ``ws://`` address; :mod:`.mcp` — an MCP server.
* :mod:`.memory` — an app in the same process; :mod:`.recording` — record another transport, replay a recording.
"""
