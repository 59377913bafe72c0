"""What is published besides the wheel: a bundle, an entry of the MCP registry, a container image."""
