"""Bytes between a page and files: the ladder of ways out of a page, uploads into it."""
