"""Files for a server's tools (proposal SEP-2631): artifacts and files in the client's roots as arguments."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice, product
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pybase64

from ...._internal.tasks import in_thread
from ....artifacts._base import ArtifactStore
from ....artifacts.local._tree import open_beneath
from ....errors import TooLarge, UsageError
from ....protocol._find_content import Place, field_of, replace
from ....protocol._media import OCTET_STREAM
from ....protocol._strict_json import encode_json
from ._messages import Key, Message
from ._rewriting import FIELDS, fields_of

#: Most parts of one schema that are looked at, and their depth.
_MAX_PARTS, _MAX_DEPTH = 1000, 8
#: Most files of one call, and bytes of all of them.
_MAX_FILES, _MAX_BYTES = 16, 100 << 20

#: Place in arguments; ``None`` is any item of a list.
_Where: TypeAlias = "tuple[str | None, ...]"
#: Sends a request to the client.
Ask: TypeAlias = Callable[[bytes], Awaitable[None]]


class _Root(msgspec.Struct):
    uri: str


class _RootList(msgspec.Struct):
    roots: list[_Root] = []


class Roots:
    """Folders that a client shares, asked for when a call needs them, and of these only what is in ``allowed``
    (``None``: everything). ``available`` is true if the client has any."""

    def __init__(self, allowed: Sequence[Path] | None) -> None:
        self.available = False
        self._allowed = allowed
        self._folders: list[Path] | None = None
        self._questions: dict[Key, asyncio.Future[bytes]] = {}

    def forget(self) -> None:
        """Ask again with the next call: the roots have changed."""
        self._folders = None
        for question in self._questions.values():
            question.cancel()

    def take_answer(self, message: Message) -> bool:
        """Take the answer to a question of the proxy. Return ``False`` for the answer to another."""
        if message.key is None or message.key not in self._questions:
            return False
        question = self._questions.pop(message.key)
        if not question.done():
            question.set_result(bytes(message.envelope.result))
        return True

    async def folders(self, ask: Ask) -> list[Path]:
        """Return the folders, at most 100; none if the client does not answer within ten seconds."""
        if not self.available or (self._allowed is not None and not self._allowed):
            return []
        try:
            async with asyncio.timeout(10):
                while self._folders is None:
                    self._folders = await self._ask_once(ask)
        except TimeoutError:
            return []
        return self._folders

    async def _ask_once(self, ask: Ask) -> list[Path] | None:
        """Return the folders; ``None`` if they have changed since the question."""
        identity = f"abp-proxy-{secrets.token_hex(16)}"
        question = self._questions[identity] = asyncio.get_running_loop().create_future()
        try:
            await ask(b'{"jsonrpc":"2.0","id":"%s","method":"roots/list"}' % identity.encode())
            await asyncio.wait((question,))
        finally:
            self._questions.pop(identity, None)
        if question.cancelled():
            return None
        return await in_thread(_shared_folders, question.result(), self._allowed)


def _shared_folders(result: bytes, allowed: Sequence[Path] | None) -> list[Path]:
    try:
        roots = msgspec.json.decode(result, type=_RootList).roots[:100]
        shared = [path.resolve() for path in map(_path_of, [root.uri for root in roots]) if path is not None]
        if allowed is None:
            return shared
        pairs = [*product(shared, [folder.resolve() for folder in allowed])]
    except (OSError, RuntimeError, ValueError, RecursionError):
        return []
    inner = [path for path, folder in pairs if path.is_relative_to(folder)]
    return inner + [folder for path, folder in pairs if folder.is_relative_to(path)]


def _path_of(text: str) -> Path | None:
    if text.startswith("file:"):
        try:
            parts = urlsplit(text)
        except ValueError:
            return None
        if parts.netloc not in ("", "localhost"):
            return None
        text = unquote(parts.path)
    if "\0" in text or not Path(text).is_absolute():
        return None
    return Path(text)


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
        for where, part in _parts(schema):
            declared = part.get("x-mcp-file")
            if isinstance(declared, dict):
                urls[where] = _MAX_BYTES
                max_size = declared.get("maxSize")
                if isinstance(max_size, int) and max_size > 0:
                    urls[where] = min(max_size, _MAX_BYTES)
            elif part.get("contentEncoding") == "base64":
                texts[where] = _MAX_BYTES
        return cls(urls, texts)

    def named_in(self, message: Message) -> dict[Place, str]:
        """Return the artifacts and paths that a call names, by their places in its arguments."""
        if not (self.urls or self.texts):
            return {}
        with suppress(ValueError, RecursionError):
            arguments = _arguments(message)
            texts = (pair for where in {*self.urls, *self.texts} for pair in _texts_at(arguments, where))
            return {place: text for place, text in texts if _names_file(text)}
        return {}

    async def filled(
        self, message: Message, files: Mapping[Place, str], store: ArtifactStore, folders: Sequence[Path]
    ) -> bytes:
        """Return a call with the content of its files. A path outside of ``folders`` stays as it is.

        Raises :class:`~transports.errors.ArtifactNotFound`, :class:`~transports.errors.TooLarge` and
        :class:`~transports.errors.UsageError`."""
        if len(files) > _MAX_FILES:
            raise UsageError(f"a call may have {_MAX_FILES} files; send fewer at once")
        values: dict[Place, object] = {}
        total = 0
        for place, text in files.items():
            where = tuple(None if isinstance(step, int) else step for step in place)
            limit = min(self.urls.get(where) or self.texts[where], _MAX_BYTES - total)
            content: _Content | None
            if text.startswith("artifact:"):
                content = await _read_artifact(text, store, limit, place)
            else:
                content = await in_thread(_read_file, text, folders, limit, place)
            if content is None:
                continue
            total += len(content.data)
            encoded = (await in_thread(pybase64.b64encode, content.data)).decode()
            if where in self.urls:
                encoded = f"data:{content.mime_type};name={quote(content.filename, safe='')};base64,{encoded}"
            values[place] = encoded
        fields = fields_of(message.raw)
        params = FIELDS.decode(fields["params"])
        arguments = replace(msgspec.json.decode(params["arguments"]), values)
        params["arguments"] = msgspec.Raw(encode_json(arguments))
        fields["params"] = msgspec.Raw(encode_json(params))
        return encode_json(fields)


@dataclass(frozen=True, slots=True)
class _Content:
    data: bytes
    mime_type: str
    filename: str


async def _read_artifact(uri: str, store: ArtifactStore, limit: int, place: Place) -> _Content:
    ref = await store.stat(uri.removeprefix("artifact:").lstrip("/").partition("?")[0])
    _require_size(ref.size_bytes, limit, place)
    return _Content(await store.get(ref), ref.mime_type, ref.filename)


def _read_file(text: str, folders: Sequence[Path], limit: int, place: Place) -> _Content | None:
    """Return a file of the client; ``None`` if it is outside of ``folders``."""
    path = _path_of(text)
    if path is None or not folders:
        return None
    refused = UsageError(f"{text[:300]} is not a file in the client's roots")
    try:
        file = open_beneath(str(path), list(folders), refused)
    except UsageError:
        return None
    with BufferedReader(file) as reader:
        size = reader.seek(0, os.SEEK_END)
        _require_size(size, limit, place)
        reader.seek(0)
        content = reader.read(size)
    if len(content) < size:
        raise UsageError(f"{path.name} became shorter while it was read; call again")
    return _Content(content, mimetypes.guess_type(path.name)[0] or OCTET_STREAM, path.name)


def _require_size(size: int, limit: int, place: Place) -> None:
    if size > limit:
        raise TooLarge(f"{field_of(place)}: the file has {size:,} bytes, and {limit:,} are allowed")


def _arguments(message: Message) -> object:
    return msgspec.json.decode(FIELDS.decode(message.envelope.params)["arguments"])


def _names_file(text: str) -> bool:
    return text.startswith("artifact:") or _path_of(text) is not None


def _texts_at(node: object, where: _Where, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the texts at a place of arguments, with their own places."""
    if not where:
        if isinstance(node, str):
            yield place, node
    elif where[0] is None:
        if isinstance(node, list):
            for index, item in enumerate(node):
                yield from _texts_at(item, where[1:], (*place, index))
    elif isinstance(node, dict) and where[0] in node:
        yield from _texts_at(node[where[0]], where[1:], (*place, where[0]))


def _parts(schema: Mapping[str, object]) -> Iterator[tuple[_Where, Mapping[str, object]]]:
    """Yield at most 1,000 parts of a schema with their places, outer ones first. References in it are followed."""
    waiting: deque[tuple[_Where, object]] = deque([((), schema)])
    seen = 0
    while waiting and seen < _MAX_PARTS:
        seen += 1
        where, part = waiting.popleft()
        part = _resolved(schema, part)
        if not isinstance(part, dict):
            continue
        yield where, part
        if len(where) >= _MAX_DEPTH or seen + len(waiting) >= _MAX_PARTS:
            continue
        for key in ("anyOf", "oneOf", "allOf"):
            choices = part.get(key)
            if isinstance(choices, list):
                waiting += [(where, choice) for choice in choices[:100]]
        properties = part.get("properties")
        if isinstance(properties, dict):
            waiting += [((*where, name), inner) for name, inner in islice(properties.items(), 100)]
        if "items" in part:
            waiting.append(((*where, None), part["items"]))


def _resolved(schema: Mapping[str, object], part: object) -> object:
    """Return the part that a reference such as ``#/$defs/Page`` names."""
    for _ in range(_MAX_DEPTH):
        reference = part.get("$ref") if isinstance(part, dict) else None
        if not isinstance(reference, str):
            break
        if not reference.startswith("#/"):
            return None
        part = schema
        for step in reference[2:].split("/"):
            if not isinstance(part, Mapping):
                return None
            part = part.get(unquote(step).replace("~1", "/").replace("~0", "~"))
    return part
