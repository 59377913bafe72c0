"""Messages as JSON: what is content is taken out of a payload, kept beside the file, and put back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from ...binary import BinaryData, Broken, Encoded, Handle, LocalFile
from ...binary.detect import Place, replace
from ...errors import BadEncoding
from ...protocol.redaction import Redactor
from .entries import Leaf
from .file import Reader

__all__ = ["Packer", "hashed", "unpacked", "unpacked_leaf"]

#: Characters from which on a text is kept as a file.
_LONG = 64 * 1024
#: Bytes up to which content is written without a thread.
_SMALL = 64 * 1024


@dataclass(frozen=True, slots=True)
class Packer:
    """Takes content out of payloads, and secrets out of their texts. ``keep`` stores content, or only hashes it."""

    keep: Callable[[Iterable[bytes | memoryview]], str]
    scrubber: Redactor

    async def packed(self, payload: object, *, given: bool = False) -> tuple[object, list[Leaf]]:
        """A payload as JSON and its content. ``given`` are parameters: what counts of their content is its bytes, in
        whatever way they came."""
        found: list[tuple[Place, object]] = []
        plain = _without(self.scrubber.tree(payload), (), found)
        return plain, [await self.leaf(value, path, given=given) for path, value in found]

    async def leaf(self, value: object, path: Place = (), *, given: bool = False) -> Leaf:
        """One content."""
        match value:
            case BinaryData(content=Handle(id=handle, size=length)):
                return _described(value, Leaf(path=[*path], kind="handle", handle=handle, length=length))
            case BinaryData() if given or isinstance(value.content, bytes | LocalFile):
                sha256 = await self._keep(_bytes(value), value.size)
                return _described(value, Leaf(path=[*path], kind="bytes", sha256=sha256))
            case BinaryData(content=Encoded(text=text, encoding=encoding)):
                chunk = text.encode() if isinstance(text, str) else text
                sha256 = await self._keep([chunk], len(chunk))
                kind: Literal["encoded", "run"] = "encoded" if isinstance(text, str) else "run"
                return _described(value, Leaf(path=[*path], kind=kind, sha256=sha256, encoding=encoding))
            case Broken(reason=reason):
                return Leaf(path=[*path], kind="broken", reason=reason)
            case str():
                return Leaf(path=[*path], kind="text", sha256=await self._keep([value.encode()], len(value)))
            case bytes() | bytearray() | memoryview():
                return Leaf(path=[*path], kind="raw", sha256=await self._keep([bytes(value)], len(value)))
        raise TypeError(f"{type(value).__name__} cannot be recorded")

    async def file(self, path: Path) -> Leaf:
        """A file that was fetched."""
        return await self.leaf(BinaryData(LocalFile(path)))

    async def _keep(self, chunks: Iterable[bytes | memoryview], size: int | None) -> str:
        if size is not None and size <= _SMALL:
            return self.keep(chunks)
        return await asyncio.to_thread(self.keep, chunks)


def hashed(chunks: Iterable[bytes | memoryview]) -> str:
    """The SHA-256 of content that nobody keeps."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _bytes(binary: BinaryData) -> Iterator[bytes]:
    try:
        yield from binary.chunks()
    except BadEncoding:  # the transport will say so; until then it is its text that is given
        assert isinstance(binary.content, Encoded)
        yield (
            bytes(binary.content.text, "utf-8") if isinstance(binary.content.text, str) else bytes(binary.content.text)
        )


def _described(binary: BinaryData, leaf: Leaf) -> Leaf:
    about = {"mime_type": binary.mime_type, "size": binary.size, "filename": binary.filename}
    return leaf.model_copy(update={**about, "extra": dict(binary.extra)})


def _without(node: object, path: Place, found: list[tuple[Place, object]]) -> object:
    """The tree with null in the place of content, which is added to ``found``."""
    match node:
        case dict():
            return {str(key): _without(value, (*path, str(key)), found) for key, value in node.items()}
        case list() | tuple():
            return [_without(value, (*path, index), found) for index, value in enumerate(node)]
        case str() if len(node) <= _LONG:
            return node
        case BinaryData() | Broken() | bytes() | bytearray() | memoryview() | str():
            found.append((path, node))
            return None
        case _:
            return node


def unpacked(reader: Reader, line: int, payload: object, leaves: Sequence[Leaf]) -> object:
    """A payload with its content back in its places. Raises :class:`~transports.errors.BadRecording`."""
    values: dict[Place, object] = {tuple(leaf.path): unpacked_leaf(reader, line, leaf) for leaf in leaves}
    try:
        return replace(payload, values)
    except KeyError as error:
        raise reader.bad(line, str(error.args[0]), "undo what was edited, or record again") from None


def unpacked_leaf(reader: Reader, line: int, leaf: Leaf) -> object:
    """One content. Raises :class:`~transports.errors.BadRecording` if its file is gone or was changed."""
    if leaf.kind == "broken":
        return Broken(leaf.reason)
    about = (leaf.mime_type, leaf.size, leaf.filename, leaf.extra)
    if leaf.kind == "handle":
        return BinaryData(Handle(leaf.handle, leaf.length), *about)
    data = reader.content(leaf, line).read_bytes()
    match leaf.kind:
        case "bytes":
            return BinaryData(data, *about)
        case "run":
            return BinaryData(Encoded(memoryview(data), leaf.encoding), *about)
        case "encoded":
            return BinaryData(Encoded(data.decode(), leaf.encoding), *about)
        case "text":
            return data.decode()
        case _:
            return cast(object, data)
