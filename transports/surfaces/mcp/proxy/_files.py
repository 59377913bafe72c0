"""Files for a server's tools (proposal SEP-2631): artifacts and files in the client's roots as arguments.

* :class:`Roots` — the folders that the client shares.
* :class:`FileParams` — the parameters of a tool that are files, and their content."""

from __future__ import annotations

import asyncio
import mimetypes
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pybase64

from ....artifacts import ArtifactRef, ArtifactStore, open_beneath
from ....binary import OCTET_STREAM
from ....binary.detect import Place, field_of, replace
from ....errors import TooLarge, UsageError
from ....protocol import encode_json
from ._lines import LONG, Line

#: Most parameters of one object and parts of one schema that are looked at, their depth, and files of one call.
_MAX_PARAMS, _MAX_PARTS, _MAX_DEPTH, _MAX_FILES = 100, 1000, 8, 16
#: Largest file in bytes.
_MAX_BYTES = 100 << 20
#: Most roots of a client, and seconds for it to list them.
_MAX_ROOTS, _TIMEOUT = 100, 10.0
#: Bytes of a file that are encoded at once, a multiple of three.
_PIECE = 3 << 18
_ASKED = "abp-proxy-"
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])

#: Place in arguments; ``None`` is any item of a list.
_Where: TypeAlias = tuple[str | None, ...]

#: Sends a request to the client, given the key and the method.
Ask: TypeAlias = Callable[[bytes, str], Awaitable[None]]


class _Root(msgspec.Struct):
    uri: str


class _RootList(msgspec.Struct):
    roots: list[_Root] = []


class Roots:
    """Folders that the client shares, asked for when a call needs them. ``available`` is true if the client has any."""

    def __init__(self, ask: Ask) -> None:
        self.available = False
        self._ask = ask
        self._folders: list[Path] | None = None
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}

    def forget(self) -> None:
        """Ask again with the next call: the roots have changed."""
        self._folders = None

    def answered(self, key: bytes, result: bytes) -> bool:
        """Take the answer to a question of ours. Return ``False`` for the answer to another."""
        answer = self._asked.pop(key, None)
        if answer is not None and not answer.done():
            answer.set_result(result)
        return answer is not None

    async def folders(self) -> list[Path]:
        """Return the folders, at most 100; none if the client does not answer within ten seconds."""
        if not self.available:
            return []
        if self._folders is None:
            key = encode_json(f"{_ASKED}{secrets.token_hex(8)}")
            self._asked[key] = asyncio.get_running_loop().create_future()
            try:
                await self._ask(key, "roots/list")
                async with asyncio.timeout(_TIMEOUT):
                    self._folders = _folders(await self._asked[key])
            except TimeoutError:
                return []
            finally:
                self._asked.pop(key, None)
        return self._folders


def _folders(result: bytes) -> list[Path]:
    try:
        roots = msgspec.json.decode(result, type=_RootList).roots[:_MAX_ROOTS]
    except msgspec.MsgspecError:
        return []
    paths = [path for root in roots if (path := _path_of(root.uri)) is not None]
    with suppress(OSError, RuntimeError, ValueError):
        return [path.resolve() for path in paths]
    return []


def _path_of(text: str) -> Path | None:
    """Return the path of a ``file:`` URI or an absolute path."""
    if text.startswith("file:"):
        parts = urlsplit(text)
        text = unquote(parts.path) if parts.netloc in ("", "localhost") else ""
    path = Path(text)
    return path if text and "\0" not in text and path.is_absolute() else None


@dataclass(frozen=True, slots=True)
class FileParams:
    """Parameters of a tool that are files, anywhere in its schema: a URI with ``x-mcp-file``, sent as a ``data:`` URL,
    or a text with ``contentEncoding: base64``, sent as base64. ``urls`` and ``texts`` are their places, with the
    largest size in bytes."""

    urls: Mapping[_Where, int]
    texts: Mapping[_Where, int]

    @classmethod
    def of(cls, schema: Mapping[str, object]) -> FileParams:
        """Return the parameters of a tool by its ``inputSchema``. At most 1,000 parts of a schema are looked at."""
        urls: dict[_Where, int] = {}
        texts: dict[_Where, int] = {}
        for where, part in islice(_parts(schema), _MAX_PARTS):
            if isinstance(file := part.get("x-mcp-file"), dict):
                most = file.get("maxSize")
                urls[where] = min(most, _MAX_BYTES) if isinstance(most, int) and most > 0 else _MAX_BYTES
            elif part.get("contentEncoding") == "base64":
                texts[where] = _MAX_BYTES
        return cls(urls, texts)

    def __bool__(self) -> bool:
        return bool(self.urls or self.texts)

    def named(self, line: Line) -> dict[Place, str]:
        """Return the artifacts and paths that a call names, by their places in its arguments."""
        if not self or line.size >= LONG:
            return {}
        with suppress(msgspec.MsgspecError):
            arguments = _arguments(line.short)
            found = (one for where in {*self.urls, *self.texts} for one in _places(arguments, where))
            return {place: text for place, text in found if _is_named(text)}
        return {}

    async def filled(
        self, line: bytes, named: Mapping[Place, str], store: ArtifactStore, roots: Roots
    ) -> AsyncIterator[bytes]:
        """Yield a call with the content of its files. A path outside the client's roots stays as it is.

        Raises :class:`~transports.errors.ArtifactNotFound`, :class:`~transports.errors.TooLarge` and
        :class:`~transports.errors.UsageError` before the first piece."""
        if len(named) > _MAX_FILES:
            raise UsageError(f"a call may have {_MAX_FILES} files; send fewer at once")
        async with AsyncExitStack() as stack:
            marks: dict[str, _Content] = {}
            places: dict[Place, str] = {}
            for place, text in named.items():
                most = self.urls.get(_where(place)) or self.texts[_where(place)]
                content = await _content(text, store, roots)
                if content is None:
                    continue
                if isinstance(content, _File):
                    stack.callback(content.file.close)
                if content.size > most:
                    raise TooLarge(f"{field_of(place)}: the file has {content.size:,} bytes, and {most:,} are allowed")
                mark = secrets.token_hex(16)
                marks[mark], places[place] = content, mark
            message = _FIELDS.decode(line)
            params = _FIELDS.decode(message["params"])
            arguments = replace(msgspec.json.decode(params["arguments"]), places)
            params["arguments"] = msgspec.Raw(msgspec.json.encode(arguments))
            message["params"] = msgspec.Raw(msgspec.json.encode(params))
            data = msgspec.json.encode(message)
            for place, mark in sorted(places.items(), key=lambda item: data.find(item[1].encode())):
                before, _, data = data.partition(mark.encode())
                yield before
                if _where(place) in self.urls:
                    yield marks[mark].head()
                async for piece in marks[mark].base64():
                    yield piece
            yield data


@dataclass(frozen=True, slots=True)
class _Artifact:
    ref: ArtifactRef
    store: ArtifactStore

    @property
    def size(self) -> int:
        return self.ref.size_bytes

    def head(self) -> bytes:
        return _head(self.ref.mime_type, self.ref.filename)

    async def base64(self) -> AsyncIterator[bytes]:
        async for chunk in self.store.open(self.ref, chunk_size=_PIECE):
            yield pybase64.b64encode(chunk)


@dataclass(frozen=True, slots=True)
class _File:
    file: FileIO
    size: int

    def head(self) -> bytes:
        name = Path(str(self.file.name)).name
        return _head(mimetypes.guess_type(name)[0] or OCTET_STREAM, name)

    async def base64(self) -> AsyncIterator[bytes]:
        left = self.size
        while left > 0 and (chunk := await asyncio.to_thread(_read, self.file, min(left, _PIECE))):
            left -= len(chunk)
            yield pybase64.b64encode(chunk)
        if left:
            raise UsageError(f"{self.file.name} became shorter while it was read; call again")


_Content: TypeAlias = _Artifact | _File


def _read(file: FileIO, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


async def _content(text: str, store: ArtifactStore, roots: Roots) -> _Content | None:
    if text.startswith("artifact:"):
        return _Artifact(await store.stat(urlsplit(text).netloc), store)
    path, folders = _path_of(text), await roots.folders()
    if path is None or not folders:
        return None
    refused = UsageError(f"{text[:300]} is not a file in the client's roots")
    try:
        file = await asyncio.to_thread(open_beneath, str(path), folders, refused)
    except UsageError:
        return None
    return _File(file, _size(file))


def _size(file: FileIO) -> int:
    size = file.seek(0, 2)
    file.seek(0)
    return size


def _head(mime_type: str, name: str) -> bytes:
    return f"data:{mime_type};name={quote(name, safe='')};base64,".encode()


def _arguments(line: bytes) -> dict[str, object]:
    params = _FIELDS.decode(_FIELDS.decode(line)["params"])
    return msgspec.json.decode(params["arguments"], type=dict[str, object]) if "arguments" in params else {}


def _places(node: object, where: _Where, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the texts at some place of arguments."""
    if not where:
        if isinstance(node, str):
            yield place, node
    elif where[0] is None:
        for at, item in enumerate(node) if isinstance(node, list) else ():
            yield from _places(item, where[1:], (*place, at))
    elif isinstance(node, dict) and where[0] in node:
        yield from _places(node[where[0]], where[1:], (*place, where[0]))


def _where(place: Place) -> _Where:
    return tuple(None if isinstance(step, int) else step for step in place)


def _parts(schema: Mapping[str, object]) -> Iterator[tuple[_Where, Mapping[str, object]]]:
    """Yield the parts of a schema with their places, outer ones first. References in the schema are followed."""
    waiting: deque[tuple[_Where, object]] = deque([((), schema)])
    while waiting:
        where, part = waiting.popleft()
        part = _referred(schema, part)
        if not isinstance(part, dict):
            continue
        yield where, part
        if len(where) >= _MAX_DEPTH:
            continue
        for key in ("anyOf", "oneOf", "allOf"):
            chosen = part.get(key)
            waiting += [(where, one) for one in chosen[:_MAX_PARAMS]] if isinstance(chosen, list) else []
        inner = part.get("properties")
        listed = list(inner.items())[:_MAX_PARAMS] if isinstance(inner, dict) else []
        waiting += [((*where, name), one) for name, one in listed]
        if "items" in part:
            waiting.append(((*where, None), part["items"]))


def _referred(schema: Mapping[str, object], part: object) -> object:
    """Return what a part of a schema refers to, such as ``#/$defs/Page``."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(part, dict) or not isinstance(reference := part.get("$ref"), str):
            break
        found: object = schema if reference.startswith("#/") else None
        for step in reference[2:].split("/"):
            found = found.get(unquote(step).replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        part = found
    return part


def _is_named(text: str) -> bool:
    return text.startswith("artifact:") or _path_of(text) is not None
