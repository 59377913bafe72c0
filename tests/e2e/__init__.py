"""Whole programs: a real browser, the installed command, servers of other people."""
