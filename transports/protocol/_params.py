"""Content in the parameters of a call: bytes, paths and open files become :class:`BinaryData`."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..errors import UsageError
from ._find_content import DESCRIPTOR_KEYS, MAX_DEPTH, Found, Place
from .binary import BinaryData, name_of_file

_INDEX = re.compile(r"[0-9]{1,9}")


class FileToRead(Exception):
    """Raised for an open file in parameters that are prepared in an event loop; prepare them in a thread."""


def prepare_params(params: object, *, read_files: bool = True) -> tuple[object, list[Found]]:
    """Return a copy of ``params`` with a :class:`BinaryData` for each binary, and the binaries with their places.

    A binary is a ``bytes``, a ``Path``, an open binary file, a :class:`BinaryData`, or a descriptor with one of these
    as its ``content``. Open files are read from their position to their end, or raise :class:`FileToRead` without
    ``read_files``."""
    preparation = _Preparation(read_files)
    return preparation.copy_value(params, ()), preparation.content


def set_path(params: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Missing objects on the path are created. In a list, a step is the index of an item, or of the next one to
    append."""
    container: Any = params
    for depth, step in enumerate(path, 1):
        key: Any = step
        if isinstance(container, list) and _INDEX.fullmatch(step) and int(step) <= len(container):
            key = int(step)
            if key == len(container):
                container.append({})
        elif isinstance(container, dict):
            container.setdefault(step, {})
        else:
            # The step before this one led here.
            conflict = f"{path[depth - 2]!r} already has a value that is not an object"
            raise UsageError(f"{'.'.join(path)}: {conflict}; give the whole at once")

        if depth == len(path):
            container[key] = value
        container = container[key]


class _Preparation:
    """A copy of parameters in the making, and the content that it has so far."""

    def __init__(self, read_files: bool) -> None:
        self.content: list[Found] = []
        self._read_files = read_files

    def copy_value(self, value: object, path: Place) -> object:
        match value:
            case None | bool() | int():
                return value
            case str():
                return _checked_text(value, path)
            case float():
                if not math.isfinite(value):
                    raise UsageError(f"params: {value} at {_dotted(path)} is not a JSON value")
                return value
            case dict() | list() | tuple() if len(path) >= MAX_DEPTH:
                raise UsageError(f"params are nested deeper than {MAX_DEPTH} levels at {_dotted(path[:6])}…")
            case dict():
                binary = self._described_content(value, path)
                if binary is None:
                    return {
                        _checked_text(key, path): self.copy_value(member, (*path, key)) for key, member in value.items()
                    }
            case list() | tuple():
                return [self.copy_value(item, (*path, index)) for index, item in enumerate(value)]
            case _:
                binary = self._content_of(value, path)
                if binary is None:
                    raise UsageError(
                        f"params: {type(value).__name__} at {_dotted(path)} cannot be sent; "
                        "use JSON values, bytes, pathlib.Path, a file that is open in binary mode, or BinaryData"
                    )
        self.content.append(Found(path, binary))  # a descriptor, or content by its type
        return binary

    def _described_content(self, node: dict[object, object], path: Place) -> BinaryData | None:
        """The declarations of a descriptor, such as its ``mimeType``, take precedence over properties of its
        content."""
        mime_type = node.get("mimeType")
        if not isinstance(mime_type, str):
            return None
        raw = self._content_of(node.get("content"), path)
        if raw is None:
            return None

        metadata = {key: value for key, value in node.items() if key not in DESCRIPTOR_KEYS}
        metadata_copy = _Preparation(self._read_files)
        extra = metadata_copy.copy_value(metadata, path)
        if metadata_copy.content or not isinstance(extra, dict):
            raise UsageError(f"params: the binary at {_dotted(path)} holds another binary beside its content")

        filename = node.get("filename")
        if not isinstance(filename, str):
            filename = raw.filename
        return BinaryData(raw.content, mime_type, raw.size, filename, {**raw.extra, **extra})

    def _content_of(self, value: object, path: Place) -> BinaryData | None:
        match value:
            case BinaryData():
                return value
            case bytes() | bytearray() | memoryview():
                return BinaryData.from_bytes(value)
            case Path():
                return BinaryData.from_path(value)
            case None | str():
                return None

        # Temporary files and uploads wrap the open file.
        file = getattr(value, "file", value)
        if not isinstance(file, io.IOBase):
            return None
        if isinstance(file, io.TextIOBase):
            raise UsageError(f"params: {_dotted(path)} is a file in text mode; open it with open(path, 'rb')")
        if not self._read_files:
            raise FileToRead
        return _read_open_file(file, getattr(value, "name", None), path)


def _read_open_file(file: io.IOBase, name: object, path: Place) -> BinaryData:
    try:
        data = cast(BinaryIO, file).read()
        is_exhausted = not data and file.seekable() and file.tell() > 0
    except (OSError, ValueError) as error:
        # ValueError: the file is closed.
        raise UsageError(f"params: the file at {_dotted(path)} cannot be read: {error}") from error
    if is_exhausted:
        raise UsageError(f"params: the file at {_dotted(path)} has been read to its end; call its seek(0) first")
    filename = name_of_file(name) if isinstance(name, str) else None
    return BinaryData.from_bytes(data, filename=filename)


def _checked_text(text: object, path: Place) -> str:
    if not isinstance(text, str):
        raise UsageError(f"params: the key {text!r} at {_dotted(path)} must be text")
    try:
        # Raises for half of a surrogate pair. The test is faster than encoding.
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"params: the text at {_dotted(path)} holds half of a surrogate pair") from None
    return text


def _dotted(path: Place) -> str:
    return ".".join(map(str, path)) or "the top"
