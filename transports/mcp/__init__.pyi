from ._transport import MCPTransport as MCPTransport
