"""Recordings of conversations with an app, so that tests run without the app (``docs/testing.md``).

* :mod:`._file` — the file format: lines of JSON, content beside the file, reader and writer.
* :mod:`._recorder` — a transport that records another one.
* :mod:`._replay` — a transport that plays a recording.
"""
