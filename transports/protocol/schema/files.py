"""Files that a schema declares as parameters. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

__all__ = ["is_file", "misgiven_files"]

#: Parameters that are looked at: the schema is the app's.
_MAX_PARAMS = 1000


def is_file(schema: Mapping[str, object]) -> bool:
    """Whether a parameter is a file, by the fields of its descriptor (docs/protocol.md 9.2)."""
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and {"content", "mimeType"} <= properties.keys()


def misgiven_files(schema: Mapping[str, object], params: object) -> list[str]:
    """Return a hint if a parameter is text where ``schema`` declares a file: mostly the path of one."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not isinstance(params, Mapping):
        return []
    for name, declared in islice(properties.items(), _MAX_PARAMS):
        if isinstance(params.get(name), str) and isinstance(declared, Mapping) and is_file(declared):
            return [f"{str(name)[:80]!r} is a file: give a pathlib.Path, bytes or a BinaryData"]
    return []
