"""The MCP bridge and the official clients: the conformance runner and the inspector's command line."""
