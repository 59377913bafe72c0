"""User interfaces of the kit: the command line, the MCP bridge, and the web server with its gallery."""
