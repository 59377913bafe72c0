"""Files of a user: those sent with a call, artifacts that are listed, read, and written to the machine, and MCP
resources: artifacts, and those of connected MCP servers."""

from __future__ import annotations

import base64
import codecs
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, ReadResourceResult, TextContent

from ..._internal.tasks import in_thread
from ...artifacts._base import ArtifactStore
from ...artifacts._files import write_all
from ...artifacts._ref import ArtifactRef, Scope
from ...artifacts.local._blobs import NO_LINKS, move_without_replacing
from ...artifacts.local._tree import Folder, folder_beneath, open_beneath, temporary_name
from ...errors import ABPError, ArtifactNotFound, Corrupt, StoreError, TooLarge, UsageError
from ...protocol._declarations import Capability
from ...protocol._params import set_path
from ...protocol._plain_text import plain_text
from ...protocol._strict_json import encode_json, members_of
from ...protocol.schema import is_file
from ...routing._given_files import GivenFile, OpenFile, accept_files, is_textual
from ...routing._guard import json_size
from ...routing._result import Result
from ..shared._apps import App
from ..shared._previews import document_text
from ._artifacts import ArtifactDescriber, Fields, artifact_contents, over_limit, read_artifact
from ._options import Options
from ._results import text_result
from ._users import User

#: Function that returns bytes, given an offset and a length.
ReadRange: TypeAlias = Callable[[int, int], Awaitable[bytes]]


# --- files sent with a call -------------------------------------------------------------------------------------------


async def with_files(
    params: Mapping[str, object],
    files: Sequence[Mapping[str, Any]],
    store: ArtifactStore,
    options: Options,
    capability: Capability,
) -> dict[str, object]:
    """Return the parameters with the content of ``files``, which are as :data:`._tool_list.FIXED_TOOLS` describes them.
    The place of a file is its ``param``; without it, the only parameter for a file that the capability declares, or
    else a new item of the list ``files``. Errors of :func:`~transports.routing.accept_files` get
    ``details["argument"]``."""
    if len(files) > options.max_files:
        raise TooLarge(f"there are {len(files)} files; at most {options.max_files} are accepted with a call")

    filled_params: dict[str, Any] = dict(params)
    with ExitStack() as open_files:
        try:
            places = _places_of_files(files, capability.input_schema, filled_params)
            files_by_place = {
                place: _open_sent_file(file, place, options.roots, open_files)
                for place, file in zip(places, files, strict=True)
            }
            accepted = await accept_files(files_by_place, store=store, limits=options.files, capability=capability.name)
        except ABPError as error:
            error.details["argument"] = "files"
            raise

    for place, file in accepted.items():
        set_path(filled_params, place.split("."), file.binary)
    return filled_params


def _places_of_files(
    files: Sequence[Mapping[str, Any]], schema: Mapping[str, object], params: dict[str, Any]
) -> list[str]:
    """Return the place of each file. If some files go into the list ``files``, that list is copied or created in
    ``params``."""
    properties = members_of(schema.get("properties"))
    file_params = [name for name, parameter in properties.items() if is_file(members_of(parameter))]
    if len(file_params) > 1 and any("param" not in file for file in files):
        raise UsageError(f"files: set `param` of each file to one of {', '.join(file_params)}")

    default_place = file_params[0] if file_params else ""
    places: list[str] = [file.get("param") or default_place for file in files]
    if "" in places:
        places = _places_in_list(places, params)
    for place in places:
        if places.count(place) > 1:
            raise UsageError(f"files: several files have the place {place}; set `param` of each")
    return places


def _places_in_list(places: Sequence[str], params: dict[str, Any]) -> list[str]:
    """Fill empty places with new items of the parameter ``files``. If the parameter is not a list, the places stay
    empty, and the app refuses them."""
    existing = params.get("files", [])
    if not isinstance(existing, list):
        return list(places)
    params["files"] = [*existing]
    numbers = count(len(existing))
    return [place or f"files.{next(numbers)}" for place in places]


def _open_sent_file(
    file: Mapping[str, Any], place: str, roots: Sequence[Path], open_files: ExitStack
) -> GivenFile | OpenFile:
    """Open a file that is a path, which must be below ``roots``. A file that is content or an artifact stays as it is,
    with other names of its fields."""
    if "path" not in file:
        fields = {"content": "content", "artifact": "id", "name": "filename", "mime_type": "mimeType"}
        return cast(GivenFile, {fields[key]: value for key, value in file.items() if key in fields})

    refusal = UsageError(
        f"files: {place}: this path may not be read; send `content` or `artifact` instead, or have the user allow its "
        "folder with ABP_MCP_ROOTS"
    )
    stream = open_files.enter_context(open_beneath(file["path"], roots, refusal))
    return OpenFile(stream, file.get("mime_type"), file.get("name") or Path(str(stream.name)).name)


# --- artifacts --------------------------------------------------------------------------------------------------------


class ArtifactTools:
    """Tools for the artifacts of one user. Each raises :class:`~transports.errors.ABPError`."""

    def __init__(self, user: User) -> None:
        self._store = user.store
        self._options = user.options
        self._describer = user.describer

    async def list(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Return a page of artifacts, newest first. It is shorter than asked for if the answer would be too large."""
        store = self._store
        session = arguments.get("session")
        if session:
            store = store.scoped(Scope(session=session))
        newest_first = (await store.list())[::-1]
        total = len(newest_first)
        start = arguments.get("offset", 0)
        end = start + arguments.get("limit", 20)

        lines, entries = _describe_until_full(newest_first[start:end], self._describer, self._options.max_answer_bytes)
        lines.append(f"{total} in all")
        next_offset: int | None = None
        if start + len(entries) < total:
            next_offset = start + len(entries)
            lines[-1] += f"; continue with offset {next_offset}"
        document = {"success": True, "total": total, "next_offset": next_offset, "artifacts": entries}
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    async def read(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Return a slice of an artifact or of a PDF's text, or write the artifact to a ``path`` on this machine."""
        ref = await self._store.stat(arguments["id"].removeprefix("artifact://"))
        path = arguments.get("path")
        if path is not None:
            real_path = await export_artifact(self._store, ref, path, self._options.export_roots)
            document = {"success": True, **self._describer.listing_entry(ref), "exported": str(real_path)}
            text = f"Written: {real_path} ({ref.size_bytes:,} bytes)"
            return text_result(text, document, self._options.max_answer_bytes)

        read_range: ReadRange = partial(self._read_stored, ref)
        if arguments.get("text"):
            pdf_text = (await document_text(ref, self._store)).encode()
            ref = replace(ref, mime_type="text/plain", size_bytes=len(pdf_text))
            read_range = partial(_read_bytes, pdf_text)

        offset = arguments.get("offset", 0)
        length = arguments.get("length")
        return await _read_slice(ref, read_range, offset, length, self._options.max_answer_bytes, self._describer)

    async def _read_stored(self, ref: ArtifactRef, offset: int, length: int) -> bytes:
        return await self._store.get(ref, offset=offset, length=length)


def _describe_until_full(
    refs: Sequence[ArtifactRef], describer: ArtifactDescriber, max_bytes: int
) -> tuple[list[str], list[dict[str, object]]]:
    """Return lines and JSON for as many artifacts as fit into ``max_bytes``, at least one. The answer must not be cut
    later, since its ``next_offset`` would be wrong."""
    lines: list[str] = []
    entries: list[dict[str, object]] = []
    bytes_for_the_rest = 1024
    bytes_left = max_bytes - bytes_for_the_rest
    for ref in refs:
        line = f"{ref.id}  {ref.size_bytes:,} bytes  {ref.mime_type}  {ref.filename}"
        if describer.is_large(ref):
            line += "  large"
        entry = describer.listing_entry(ref)
        separators = len(r"\n") + len(",")  # after the line in its JSON text, and after the entry
        bytes_left -= len(line.encode()) + json_size(entry) + separators
        if bytes_left < 0 and entries:
            break
        lines.append(line)
        entries.append(entry)
    return lines, entries


async def _read_bytes(data: bytes, offset: int, length: int) -> bytes:
    return data[offset:][:length]


async def _read_slice(
    ref: ArtifactRef,
    read_range: ReadRange,
    offset: int,
    length: int | None,
    max_bytes: int,
    describer: ArtifactDescriber,
) -> CallToolResult:
    """Without a ``length``, return as many bytes as fit into ``max_bytes``. The first text of the result is a JSON
    header, the second is the content: text without control and hidden characters, or base64."""
    header_bytes = 1024
    # Base64 makes 4 characters of 3 bytes.
    max_length = (max_bytes - header_bytes) * 3 // 4
    length = max_length if length is None else min(length, max_length)

    while True:
        data = await read_range(offset, length)
        header, content = _describe_slice(ref, data, offset, describer)
        answer = CallToolResult(content=[TextContent(text=encode_json(header).decode()), TextContent(text=content)])
        if len(answer.model_dump_json(by_alias=True).encode()) <= max_bytes:
            return answer
        # The answer is longer than its data if the text has many characters that JSON escapes.
        length //= 2


def _describe_slice(
    ref: ArtifactRef, data: bytes, offset: int, describer: ArtifactDescriber
) -> tuple[dict[str, object], str]:
    """Return the header of a slice, and its content as text or base64."""
    is_last = offset + len(data) >= ref.size_bytes
    text, size = _decode_whole_characters(ref, data, is_last)
    end = offset + size
    # Without a byte read, the next slice would begin at the same offset again and again.
    has_more = end < ref.size_bytes and size > 0
    header: dict[str, object] = {
        "id": ref.id,
        "mime_type": ref.mime_type,
        "size_bytes": ref.size_bytes,
        "offset": offset,
        "length": size,
        "encoding": "base64" if text is None else "utf-8",
        "next_offset": end if has_more else None,
    }
    url = describer.url(ref)
    if url:
        header["url"] = url

    if text is None:
        return header, base64.b64encode(data).decode()

    shown_text = plain_text(text)
    if shown_text != text:
        note = "control and hidden characters are not shown"
        if describer.as_resources:
            note += f"; the resource {ref.uri} has the exact bytes"
        header["note"] = note
    return header, shown_text


def _decode_whole_characters(ref: ArtifactRef, data: bytes, is_last: bool) -> tuple[str | None, int]:
    """Return the text and its length in bytes, or ``None`` and the length of ``data`` if it is not text. Unless it
    ``is_last``, ``data`` may end within a character."""
    not_text = (None, len(data))
    if not is_textual(ref.mime_type):
        return not_text
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=is_last)
    except UnicodeDecodeError:
        return not_text
    is_part_of_character = data and not text
    if is_part_of_character:
        return not_text
    return text, len(text.encode())


# --- export -----------------------------------------------------------------------------------------------------------


async def export_artifact(store: ArtifactStore, ref: ArtifactRef, path: str, roots: Sequence[Path]) -> Path:
    """Write an artifact to a new file, and return the file's real path. The file appears whole and verified, or not at
    all. It never replaces another file; if a file with the same content exists, nothing is written. The path cannot
    lead out of ``roots``, not even through a symlink that is created meanwhile."""
    details = {"argument": "path"}
    refusal = UsageError(
        "path: artifacts may not be written there; have the user allow the folder with ABP_MCP_EXPORT_ROOTS, or read "
        "the artifact instead",
        details=details,
    )
    target = Path(path)
    names_file = target.name not in ("", ".", "..") and "\0" not in path
    if not target.is_absolute() or not names_file:
        raise refusal

    try:
        with folder_beneath(target.parent, roots, refusal) as (real, folder):
            await _write_artifact(store, ref, folder, target.name)
            return real / target.name
    except FileExistsError:
        message = f"path: {target.name} already exists with other content; choose another name"
        raise UsageError(message, details=details) from None
    except OSError as error:
        raise UsageError(f"path: cannot write there: {error.strerror or error}", details=details) from error
    except StoreError as error:
        raise UsageError(f"path: cannot write there: {error.message}", details=details) from error


async def _write_artifact(store: ArtifactStore, ref: ArtifactRef, folder: Folder, name: str) -> None:
    """Write an artifact to the file ``name``. Raises :class:`FileExistsError` if the file exists with other content."""
    temporary = f".{temporary_name()}"
    try:
        await _write_content(store, ref, folder, temporary)
        try:
            await in_thread(_rename, temporary, folder, name)
            await in_thread(folder.sync)
        except FileExistsError:
            has_same_content = await in_thread(_sha256_of, name, folder) == ref.sha256
            if not has_same_content:
                raise
    finally:
        await in_thread(folder.unlink, temporary)


async def _write_content(store: ArtifactStore, ref: ArtifactRef, folder: Folder, name: str) -> None:
    fd = -1

    def create() -> None:
        nonlocal fd  # set even if this task is cancelled meanwhile, so that the file is always closed
        fd = folder.create(name)

    try:
        await in_thread(create)
        async with aclosing(store.open(ref.id)) as chunks:
            async for chunk in chunks:
                await in_thread(write_all, fd, memoryview(chunk))
        await in_thread(os.fsync, fd)
    finally:
        if fd >= 0:
            os.close(fd)


def _rename(temporary: str, folder: Folder, name: str) -> None:
    """Rename a temporary file. Raises :class:`FileExistsError` instead of replacing a file with this name."""
    try:
        folder.link(temporary, folder, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        move_without_replacing(temporary, folder, folder, name)


def _sha256_of(name: str, folder: Folder) -> str | None:
    """Return the hash of a file, or ``None`` if it cannot be read."""
    try:
        fd = folder.open(name)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


# --- resources --------------------------------------------------------------------------------------------------------


async def read_resource(
    store: ArtifactStore, uri: str, max_bytes: int, describer: ArtifactDescriber
) -> ReadResourceResult:
    try:
        return ReadResourceResult.model_validate(await read_artifact(store, uri, max_bytes, describer))
    except (ArtifactNotFound, Corrupt, TooLarge, UsageError) as error:
        raise _unreadable_resource(uri, error) from error


def _unreadable_resource(uri: str, error: ABPError) -> MCPError:
    return MCPError(INVALID_PARAMS, error.message, {"uri": uri[:300], "code": error.code})


async def read_app_resource(
    apps: Iterable[App], uri: str, max_bytes: int, describer: ArtifactDescriber
) -> ReadResourceResult:
    """Read a resource of a connected MCP server; its content is stored as an artifact, too. The servers that list the
    resource are tried in turn, or all servers if none lists it."""
    app, result = await _read_from_servers(apps, uri)
    try:
        contents = await _stored_contents(app, result, max_bytes, describer)
    except ABPError as error:
        raise _unreadable_resource(uri, error) from error
    return ReadResourceResult.model_validate({"contents": contents})


async def _read_from_servers(apps: Iterable[App], uri: str) -> tuple[App, Result]:
    last_error: ABPError | None = None
    for app in await _servers_to_try(apps, uri):
        try:
            return app, await app.session.resources.read(uri)
        except ABPError as error:
            last_error = error

    if last_error is not None:
        raise _unreadable_resource(uri, last_error) from last_error
    message = "no connected server has resources; here only artifact://ID can be read"
    raise MCPError(INVALID_PARAMS, message, {"uri": uri[:300]})


async def _servers_to_try(apps: Iterable[App], uri: str) -> list[App]:
    servers = [app for app in apps if app.session.resources.available]
    if len(servers) <= 1:
        return servers
    servers_with_resource = [app for app in servers if await _lists_resource(app, uri)]
    if not servers_with_resource:
        return servers
    return servers_with_resource


async def _lists_resource(app: App, uri: str) -> bool:
    try:
        return any(resource.uri == uri for resource in await app.session.resources.list())
    except ABPError:
        return False


async def _stored_contents(app: App, result: Result, max_bytes: int, describer: ArtifactDescriber) -> list[Fields]:
    """Return the contents of a resource for the client. Content that the session has stored is read from its store."""
    data: Any = result.data
    contents: list[Fields] = []
    bytes_left = max_bytes
    for index, item in enumerate(data["contents"]):
        if not isinstance(item, dict):
            continue
        uri = str(item.get("uri", ""))
        ref = result.artifacts.get(f"contents.{index}.blob") or result.artifacts.get(f"contents.{index}.text")
        if ref is None:
            contents.append({"uri": uri, "mimeType": item.get("mimeType"), "text": str(item.get("text", ""))})
            continue

        if ref.size_bytes > bytes_left:
            raise over_limit(ref, bytes_left)
        bytes_left -= ref.size_bytes
        content = await app.session.store.get(ref)
        contents.append(artifact_contents(uri, ref, content, {**describer.meta(ref), "artifact": ref.id}))
    return contents
