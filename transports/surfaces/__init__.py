"""Ways in for people and programs: the command line, the MCP bridge, the web server with its gallery."""
