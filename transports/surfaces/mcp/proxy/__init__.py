"""Proxy in front of any MCP server (``abp proxy``): the client sees the server, and large content as links
(``docs/proxy.md``)."""
