"""Binary content as one union: recognise it in an answer, decode it strictly, verify its size, name it.

* :mod:`.data` — :class:`BinaryData` and what its content can be.
* :mod:`.detect` — the parts of an answer that are binary.
* :mod:`.params` — content on its way to the app.
* :mod:`.media` — MIME types, extensions, signatures, safe file names.
"""

from __future__ import annotations

from .data import BinaryData, Broken, Content, Download, Encoded, Handle, LocalFile, verify_size

__all__ = ["BinaryData", "Broken", "Content", "Download", "Encoded", "Handle", "LocalFile", "verify_size"]
