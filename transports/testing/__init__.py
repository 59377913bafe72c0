"""For tests: of apps that speak ABP, and of transports."""
