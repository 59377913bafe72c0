"""Binary content as one union: recognise it in an answer, decode it strictly, verify its size, name its file.

* :mod:`.data` — :class:`BinaryData` and the forms of its content.
* :mod:`.detect` — the places of an answer that hold content.
* :mod:`.params` — content in the parameters of a call.
* :mod:`.media` — MIME types and extensions; :mod:`.signatures` — the type of content by its first bytes.
* :mod:`.filenames` — safe names for files.

Nothing here does I/O, except that a :class:`LocalFile` is opened when its bytes are read.
"""

from __future__ import annotations

from ._data import BinaryData, Broken, Content, Download, Encoded, Handle, LocalFile, verify_size

__all__ = ["BinaryData", "Broken", "Content", "Download", "Encoded", "Handle", "LocalFile", "verify_size"]
