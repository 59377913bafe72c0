"""Modules that all rooms share and no user imports."""
