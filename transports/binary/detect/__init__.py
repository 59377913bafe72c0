"""Recognition of content in an answer, in all its forms (docs/protocol.md 9, docs/requirements.md R2-4.1),
and trees with another value in the place of content. No I/O.

* :mod:`.walk` — the walk over an answer, which asks the rules below.
* :mod:`.descriptors` — ``{content, mimeType, …}`` and ``{downloadUrl, mimeType, …}``.
* :mod:`.flat_form` — ``{pdf: <base64>, mimeType, size}``.
* :mod:`.mcp_blocks` — content blocks and resources of MCP.
* :mod:`.heuristics` — files that nothing declares.
* :mod:`.content` — values that are content, base64 and ``data:`` URLs.
* :mod:`.paths` — places in a tree.
"""

from .content import sniff_base64
from .descriptors import DESCRIPTOR_KEYS, declares_base64
from .heuristics import MIN_GUESSED, Heuristics, Signature
from .paths import MAX_DEPTH, Found, Layer, Place, field_of, replace
from .walk import find, find_values, is_plain

__all__ = [
    "DESCRIPTOR_KEYS",
    "MAX_DEPTH",
    "MIN_GUESSED",
    "Found",
    "Heuristics",
    "Layer",
    "Place",
    "Signature",
    "declares_base64",
    "field_of",
    "find",
    "find_values",
    "is_plain",
    "replace",
    "sniff_base64",
]
