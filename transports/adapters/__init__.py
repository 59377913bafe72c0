"""The transports. Each reaches apps in one way; none imports another.

* :mod:`.playwright` — a page in a real browser; :mod:`.postmessage` — an app embedded in an iframe.
* :mod:`.websocket` — an app behind a ``ws://`` address; :mod:`.mcp` — an MCP server.
* :mod:`.memory` — an app in the same process; :mod:`.recording` — record another transport, replay a recording.
"""
