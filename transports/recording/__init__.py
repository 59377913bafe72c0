"""Recordings of conversations with an app, so that tests run without the app (``docs/testing.md``)."""
