"""Which parts of an answer are binaries (seeds 000 to 002, PROTOCOL "What public clients and apps get wrong"),
and trees with something else in a binary's place. No I/O."""

from .content import sniffed
from .descriptors import DESCRIPTOR_KEYS, surely_base64
from .heuristics import MIN_GUESSED
from .paths import MAX_DEPTH, Found, Layer, Place, field_of, replace
from .walk import contents, find

__all__ = [
    "DESCRIPTOR_KEYS",
    "MAX_DEPTH",
    "MIN_GUESSED",
    "Found",
    "Layer",
    "Place",
    "contents",
    "field_of",
    "find",
    "replace",
    "sniffed",
    "surely_base64",
]
