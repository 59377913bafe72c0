"""The transports. Each reaches apps in one way; none imports another."""
