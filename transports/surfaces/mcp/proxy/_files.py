"""Files for a server's tools (proposal SEP-2631): artifacts and files in the client's roots as arguments."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pybase64

from ...._internal.tasks import in_thread
from ....artifacts._base import ArtifactStore
from ....artifacts.local._tree import open_beneath
from ....errors import TooLarge, UsageError
from ....protocol._find_content import Place, field_of, replace_values
from ....protocol._media import OCTET_STREAM
from ....protocol._strict_json import encode_json, items_of, members_of
from ...shared._capability_tools import resolve_reference
from ._messages import FIELDS_DECODER, Key, Message, fields_of, to_raw

#: Maximum number of levels of a schema that are searched, and of references that are followed one after the other.
_MAX_DEPTH = 8
#: Maximum number of bytes of all files of one call.
_MAX_BYTES = 100 << 20

#: Place of a parameter in a schema; ``None`` is any item of a list.
_SchemaPlace: TypeAlias = "tuple[str | None, ...]"
#: Sends a request to the client.
Ask: TypeAlias = Callable[[bytes], Awaitable[None]]


class _Root(msgspec.Struct):
    uri: str


class _RootList(msgspec.Struct):
    roots: list[_Root] = []


class Roots:
    """Folders that a client shares (MCP "Roots"). The client is asked for them when a call needs them. Only folders in
    ``allowed`` are used; if it is ``None``, all are. ``available`` is true if the client shares folders at all."""

    def __init__(self, allowed: Sequence[Path] | None) -> None:
        self.available = False
        self._allowed = allowed
        self._folders: list[Path] | None = None
        self._questions: dict[Key | None, asyncio.Future[bytes]] = {}

    def consume(self, message: Message) -> bool:
        """Take the client's answer to a question for its folders. Return whether ``message`` is such an answer. If it
        says that the folders have changed, they are asked for again by the next call."""
        if message.method == "notifications/roots/list_changed":
            self._folders = None
            for question in self._questions.values():
                question.cancel()

        if not message.is_answer or message.key not in self._questions:
            return False
        question = self._questions.pop(message.key)
        if not question.done():
            question.set_result(bytes(message.envelope.result))
        return True

    async def folders(self, ask: Ask) -> list[Path]:
        """Return the client's folders, 100 at most; none if the client does not answer within ten seconds."""
        allows_nothing = self._allowed is not None and not self._allowed
        if not self.available or allows_nothing:
            return []
        try:
            async with asyncio.timeout(10):
                while self._folders is None:
                    self._folders = await self._ask_once(ask)
        except TimeoutError:
            return []
        return self._folders

    async def _ask_once(self, ask: Ask) -> list[Path] | None:
        """Ask the client for its folders. Return ``None`` if they changed before it answered."""
        question_id = f"abp-proxy-{secrets.token_hex(16)}"
        question = self._questions[question_id] = asyncio.get_running_loop().create_future()
        try:
            await ask(b'{"jsonrpc":"2.0","id":"%s","method":"roots/list"}' % question_id.encode())
            await asyncio.wait((question,))
        finally:
            self._questions.pop(question_id, None)

        if question.cancelled():
            return None
        return await in_thread(_usable_folders, question.result(), self._allowed)


def _usable_folders(result: bytes, allowed: Sequence[Path] | None) -> list[Path]:
    """Return the client's roots, as far as they are inside the ``allowed`` folders. Blocks."""
    try:
        roots = msgspec.json.decode(result, type=_RootList).roots[:100]
        paths = [_parse_path(root.uri) for root in roots]
        shared_folders = [path.resolve() for path in paths if path is not None]
        if allowed is None:
            return shared_folders
        pairs = [*product(shared_folders, [folder.resolve() for folder in allowed])]
    except (OSError, RuntimeError, ValueError, RecursionError):
        return []

    # From each pair of a shared and an allowed folder, use the one that is inside the other.
    shared_inside_allowed = [path for path, folder in pairs if path.is_relative_to(folder)]
    allowed_inside_shared = [folder for path, folder in pairs if folder.is_relative_to(path)]
    return shared_inside_allowed + allowed_inside_shared


def _parse_path(text: str) -> Path | None:
    """Return the path that a text names: a ``file:`` URL of this machine, or an absolute path. Return ``None`` for any
    other text."""
    path = text
    if text.startswith("file:"):
        try:
            parts = urlsplit(text)
        except ValueError:
            return None
        if parts.netloc not in ("", "localhost"):
            return None
        path = unquote(parts.path)
    if "\0" in path or not Path(path).is_absolute():
        return None
    return Path(path)


class _FileParam(NamedTuple):
    """A parameter that takes a file. It is sent as a ``data:`` URL (``x-mcp-file``), or otherwise as base64
    (``contentEncoding``)."""

    is_url: bool
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FileParams:
    """Parameters that are files, anywhere in a tool's schema."""

    by_place: Mapping[_SchemaPlace, _FileParam]

    @classmethod
    def of(cls, schema: Mapping[str, object]) -> FileParams:
        """Find parameters for files in the first 1,000 parts of a schema."""
        by_place: dict[_SchemaPlace, _FileParam] = {}
        for schema_place, part in _schema_parts(schema):
            declaration = part.get("x-mcp-file")
            if isinstance(declaration, dict):
                max_size = declaration.get("maxSize")
                if not isinstance(max_size, int) or max_size <= 0:
                    max_size = _MAX_BYTES
                by_place[schema_place] = _FileParam(is_url=True, max_bytes=min(max_size, _MAX_BYTES))
            elif part.get("contentEncoding") == "base64":
                # If another part of the schema has `x-mcp-file` for this place, that says more and stays.
                by_place.setdefault(schema_place, _FileParam(is_url=False, max_bytes=_MAX_BYTES))
        return cls(by_place)

    def find_named_in(self, message: Message) -> dict[Place, str]:
        """Return the artifacts and paths that a call names, by their places in its arguments."""
        if not self.by_place:
            return {}

        files: dict[Place, str] = {}
        try:
            params = FIELDS_DECODER.decode(message.envelope.params)
            arguments = msgspec.json.decode(params["arguments"])
            for schema_place in self.by_place:
                for place, text in _texts_at(arguments, schema_place):
                    if text.startswith("artifact:") or _parse_path(text) is not None:
                        files[place] = text
        except (ValueError, RecursionError):  # the arguments have another form, which the server refuses
            return {}
        return files

    async def fill_in(
        self, message: Message, files: Mapping[Place, str], store: ArtifactStore, folders: Sequence[Path]
    ) -> bytes:
        """Return a call with the content of files in place of their names. A path outside ``folders`` stays as it
        is."""
        max_files = 16
        if len(files) > max_files:
            raise UsageError(f"a call may have {max_files} files; send fewer at once")

        values: dict[Place, object] = {}
        bytes_left = _MAX_BYTES
        for place, text in files.items():
            # All items of a list have the same schema, whose place has None instead of the index.
            param = self.by_place[tuple(None if isinstance(step, int) else step for step in place)]
            limit = min(param.max_bytes, bytes_left)

            content: _Content | None
            if text.startswith("artifact:"):
                content = await _read_artifact(text, store, limit, place)
            else:
                content = await in_thread(_read_file, text, folders, limit, place)
            if content is not None:
                bytes_left -= len(content.data)
                values[place] = await in_thread(_encode_content, content, is_url=param.is_url)

        return _with_argument_values(message, values)


def _with_argument_values(message: Message, values: Mapping[Place, object]) -> bytes:
    fields = fields_of(message.raw)
    params = FIELDS_DECODER.decode(fields["params"])
    arguments = replace_values(msgspec.json.decode(params["arguments"]), values)
    params["arguments"] = to_raw(arguments)
    fields["params"] = to_raw(params)
    return encode_json(fields)


@dataclass(frozen=True, slots=True)
class _Content:
    data: bytes
    mime_type: str
    filename: str


def _encode_content(content: _Content, *, is_url: bool) -> str:
    base64_text = pybase64.b64encode(content.data).decode()
    if not is_url:
        return base64_text
    filename = quote(content.filename, safe="")
    return f"data:{content.mime_type};name={filename};base64,{base64_text}"


def artifact_id_in(uri: str) -> str:
    return uri.removeprefix("artifact:").lstrip("/").partition("?")[0]


async def _read_artifact(uri: str, store: ArtifactStore, limit: int, place: Place) -> _Content:
    ref = await store.stat(artifact_id_in(uri))
    _require_size(ref.size_bytes, limit, place)
    return _Content(await store.get(ref), ref.mime_type, ref.filename)


def _read_file(text: str, folders: Sequence[Path], limit: int, place: Place) -> _Content | None:
    """Read the file that a text names. Return ``None`` if it is outside ``folders``. Blocks."""
    path = _parse_path(text)
    if path is None or not folders:
        return None

    refusal = UsageError(f"{text[:300]} is not a file in the client's roots")
    try:
        file = open_beneath(str(path), list(folders), refusal)
    except UsageError:
        return None

    with BufferedReader(file) as reader:
        size = reader.seek(0, os.SEEK_END)
        _require_size(size, limit, place)
        reader.seek(0)
        content = reader.read(size)
    if len(content) < size:
        raise UsageError(f"{path.name} became shorter while it was read; call again")

    mime_type, _ = mimetypes.guess_type(path.name)
    return _Content(content, mime_type or OCTET_STREAM, path.name)


def _require_size(size: int, limit: int, place: Place) -> None:
    if size > limit:
        raise TooLarge(f"{field_of(place)}: the file has {size:,} bytes, and {limit:,} are allowed")


def _texts_at(node: object, schema_place: _SchemaPlace, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the texts in a tree that are at ``schema_place``, with their places. If the schema has a list on the way,
    these are the texts in all its items. ``node`` is the part of the tree at ``place``."""
    if not schema_place:
        if isinstance(node, str):
            yield place, node
        return

    step = schema_place[0]
    rest = schema_place[1:]
    if step is None and isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts_at(item, rest, (*place, index))
    elif step is not None and isinstance(node, dict) and step in node:
        yield from _texts_at(node[step], rest, (*place, step))


def _schema_parts(schema: Mapping[str, object]) -> Iterator[tuple[_SchemaPlace, Mapping[str, object]]]:
    """Yield the parts of a schema with their places, 1,000 at most, outer ones first. References are followed."""
    max_parts = 1000
    unvisited: deque[tuple[_SchemaPlace, object]] = deque([((), schema)])
    visited = 0
    while unvisited and visited < max_parts:
        visited += 1
        place, part = unvisited.popleft()
        part = _follow_references(schema, part)
        if not isinstance(part, dict):
            continue
        yield place, part

        has_enough = visited + len(unvisited) >= max_parts
        if has_enough or len(place) >= _MAX_DEPTH:
            continue
        for key in ("anyOf", "oneOf", "allOf"):
            unvisited += [(place, choice) for choice in items_of(part.get(key))[:100]]
        properties = members_of(part.get("properties"))
        unvisited += [((*place, name), inner) for name, inner in islice(properties.items(), 100)]
        if "items" in part:
            unvisited.append(((*place, None), part["items"]))


def _follow_references(schema: Mapping[str, object], part: object) -> object:
    """Return the part of the schema that ``part`` refers to. Return ``part`` itself if it is not a reference, and
    ``None`` for a reference to another schema."""
    for _ in range(_MAX_DEPTH):
        reference = part.get("$ref") if isinstance(part, dict) else None
        if not isinstance(reference, str):
            break
        part = resolve_reference(reference, schema)
    return part
