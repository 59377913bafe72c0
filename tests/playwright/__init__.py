"""Tests of the parts of the browser room that need no browser."""
