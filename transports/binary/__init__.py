"""Binary content: detection in answers, strict decoding, verification of sizes, MIME types and file names.

* :mod:`.data` — :class:`BinaryData` and the forms of its content.
* :mod:`.detect` — content in answers (descriptors, blocks, heuristics) and in the parameters of a call.
* :mod:`.media` — MIME types, signatures (the type by the first bytes), extensions, and safe file names.

Nothing here does I/O, except that a :class:`LocalFile` is opened when its bytes are read.
"""

from __future__ import annotations

from .data import BinaryData, Broken, Content, Download, Encoded, Handle, LocalFile, verify_size

__all__ = ["BinaryData", "Broken", "Content", "Download", "Encoded", "Handle", "LocalFile", "verify_size"]
