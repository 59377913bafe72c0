"""Binary content: detection in answers, strict decoding, verification of sizes, MIME types and file names.

* :mod:`._data` — :class:`BinaryData` and the forms of its content.
* :mod:`.detect` — content in answers (descriptors, blocks, heuristics) and in the parameters of a call.
* :mod:`._media` — MIME types, signatures (the type by the first bytes), extensions, and safe file names.

Nothing here does I/O, except that a :class:`LocalFile` is opened when its bytes are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names
from ._data import BinaryData, Broken, Content, Download, Encoded, Handle, LocalFile, verify_size

if TYPE_CHECKING:
    from ._media import (
        OCTET_STREAM as OCTET_STREAM,
        contradicts as contradicts,
        extension_for as extension_for,
        is_binary_mime as is_binary_mime,
        normalise_mime as normalise_mime,
        safe_filename as safe_filename,
        sniff as sniff,
        text_type_of_name as text_type_of_name,
        type_of_extension as type_of_extension,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_media": (
                "OCTET_STREAM",
                "contradicts",
                "extension_for",
                "is_binary_mime",
                "normalise_mime",
                "safe_filename",
                "sniff",
                "text_type_of_name",
                "type_of_extension",
            ),
        },
    )

__all__ = ["BinaryData", "Broken", "Content", "Download", "Encoded", "Handle", "LocalFile", "verify_size"]
