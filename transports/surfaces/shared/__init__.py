"""Parts that the MCP bridge and the web server share: connected apps, the activity log, the watcher of a store."""
