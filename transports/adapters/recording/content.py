"""Messages as JSON: binary content is taken out of a payload, stored beside the file, and put back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from ...artifacts import ArtifactRef
from ...binary import BinaryData, Broken, Encoded, Handle, LocalFile
from ...binary.detect import Place, replace
from ...errors import BadEncoding
from ...protocol.redaction import Redactor
from ...protocol.secrets import MAX_MASKED_BYTES, KnownSecrets
from ...protocol.strict_json import is_larger
from .entries import ContentEntry
from .file import Reader

__all__ = ["ContentPacker", "hash_content", "scrubbed", "unpack", "unpack_content"]

#: Longer texts, in characters, are stored as files.
_MAX_INLINE_CHARS = 64 * 1024
#: Values, of which 64 characters count as one, whose secrets are looked for in a thread (measured: 13 µs for each).
_MANY = 1000
#: Content of more bytes is written in a thread.
_THREAD_FROM = 64 * 1024


async def scrubbed(scrubber: Redactor, payload: object) -> object:
    """Return a payload without its secrets. Much text is searched in a thread."""
    if is_larger(payload, _MANY):
        return await asyncio.to_thread(scrubber.tree, payload)
    return scrubber.tree(payload)


@dataclass(frozen=True, slots=True)
class ContentPacker:
    """Takes content out of payloads, and secrets out of their texts.

    ``store`` writes content and returns its SHA-256; for a replay it only computes that.
    """

    store: Callable[[Iterable[bytes | memoryview]], str]
    scrubber: Redactor

    async def pack(self, payload: object, *, is_parameter: bool = False) -> tuple[object, list[ContentEntry]]:
        """Return a payload as JSON, and its content.

        With ``is_parameter`` content is recorded as its bytes, in whatever encoding it came: two calls with the same
        bytes are the same call.
        """
        found: list[tuple[Place, object]] = []
        plain = _extract(await scrubbed(self.scrubber, payload), (), found)
        return plain, [await self.leaf(value, path, is_parameter=is_parameter) for path, value in found]

    async def leaf(self, value: object, path: Place = (), *, is_parameter: bool = False) -> ContentEntry:
        """Return the entry of one content, which is stored."""
        match value:
            case BinaryData(content=Handle(id=handle, size=length)):
                return _with_description(value, ContentEntry(path=[*path], kind="handle", handle=handle, length=length))
            case BinaryData() if is_parameter or isinstance(value.content, bytes | LocalFile):
                sha256 = await self._store(_bytes(value), value.size)
                return _with_description(value, ContentEntry(path=[*path], kind="bytes", sha256=sha256))
            case BinaryData(content=Encoded(text=text, encoding=encoding)):
                chunk = text.encode() if isinstance(text, str) else text
                sha256 = await self._store([chunk], len(chunk))
                kind: Literal["encoded", "run"] = "encoded" if isinstance(text, str) else "run"
                return _with_description(value, ContentEntry(path=[*path], kind=kind, sha256=sha256, encoding=encoding))
            case Broken(reason=reason):
                return ContentEntry(path=[*path], kind="broken", reason=reason)
            case str():
                return ContentEntry(path=[*path], kind="text", sha256=await self._store([value.encode()], len(value)))
            case bytes() | bytearray() | memoryview():
                return ContentEntry(path=[*path], kind="raw", sha256=await self._store([bytes(value)], len(value)))
        raise TypeError(f"{type(value).__name__} cannot be recorded")

    async def file(self, path: Path) -> ContentEntry:
        """Return the entry of a file that was fetched."""
        return await self.leaf(BinaryData(LocalFile(path)))

    async def _store(self, chunks: Iterable[bytes | memoryview], size: int | None) -> str:
        if self.scrubber.known:
            chunks = _masked(chunks, self.scrubber.known)
        if size is not None and size <= _THREAD_FROM:
            return self.store(chunks)
        return await asyncio.to_thread(self.store, chunks)


def hash_content(chunks: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of content without storing it."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _masked(chunks: Iterable[bytes | memoryview], known: KnownSecrets) -> Iterator[bytes | memoryview]:
    """Yield content with known secrets masked, if it is small enough for that."""
    kept, rest = bytearray(), iter(chunks)
    for chunk in rest:
        kept += chunk
        if len(kept) > MAX_MASKED_BYTES:
            break
    yield known.mask(bytes(kept))
    yield from rest


def _bytes(binary: BinaryData) -> Iterator[bytes]:
    try:
        yield from binary.chunks()
    except BadEncoding:  # the transport will raise that; here its text is the content
        assert isinstance(binary.content, Encoded)
        yield (
            bytes(binary.content.text, "utf-8") if isinstance(binary.content.text, str) else bytes(binary.content.text)
        )


def _with_description(binary: BinaryData, leaf: ContentEntry) -> ContentEntry:
    about = {"mime_type": binary.mime_type, "size": binary.size, "filename": binary.filename}
    return leaf.model_copy(update={**about, "extra": dict(binary.extra)})


def _extract(node: object, path: Place, found: list[tuple[Place, object]]) -> object:
    """Return the tree with null in the place of content, which is added to ``found``."""
    match node:
        case dict():
            return {str(key): _extract(value, (*path, str(key)), found) for key, value in node.items()}
        case list() | tuple():
            return [_extract(value, (*path, index), found) for index, value in enumerate(node)]
        case str() if len(node) <= _MAX_INLINE_CHARS:
            return node
        case BinaryData() | Broken() | bytes() | bytearray() | memoryview() | str():
            found.append((path, node))
            return None
        case ArtifactRef():  # stored by the app; a replay has the reference, not the file
            return node.as_dict()
        case _:
            return node


def unpack(reader: Reader, line: int, payload: object, leaves: Sequence[ContentEntry]) -> object:
    """Return a payload with its content back in its places.

    ``line`` is the payload's line in the file. Raises :class:`~transports.errors.BadRecording` if a place does not
    exist.
    """
    values: dict[Place, object] = {tuple(leaf.path): unpack_content(reader, line, leaf) for leaf in leaves}
    try:
        return replace(payload, values)
    except KeyError as error:
        raise reader.error(line, str(error.args[0]), "undo what was edited, or record again") from None


def unpack_content(reader: Reader, line: int, leaf: ContentEntry) -> object:
    """Return one content. Raises :class:`~transports.errors.BadRecording` if its file is missing or was changed."""
    if leaf.kind == "broken":
        return Broken(leaf.reason)
    about = (leaf.mime_type, leaf.size, leaf.filename, leaf.extra)
    if leaf.kind == "handle":
        return BinaryData(Handle(leaf.handle, leaf.length), *about)
    with reader.content(leaf, line) as file:
        data = file.read()
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
