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
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, ListResourcesResult, ReadResourceResult, TextContent

from ..._internal.tasks import in_thread
from ...artifacts._base import ArtifactStore
from ...artifacts._files import write_all
from ...artifacts._ref import ArtifactRef, Scope
from ...artifacts.local._blobs import NO_LINKS, place as rename_unreplacing
from ...artifacts.local._tree import Folder, folder_beneath, open_beneath, temporary_name
from ...errors import ABPError, ArtifactNotFound, Corrupt, StoreError, TooLarge, UsageError
from ...protocol._declarations import Capability
from ...protocol._params import set_path
from ...protocol._plain_text import plain_text
from ...protocol._strict_json import encode_json
from ...protocol.schema import is_file
from ...routing._given_files import GivenFile, OpenFile, accept_files, is_textual
from ...routing._guard import json_size
from ...routing._result import Result
from ..shared._apps import App
from ..shared._previews import document_text
from ._artifacts import ArtifactView, Fields, artifact_contents, list_artifacts, over_limit, read_artifact
from ._options import Options
from ._results import text_result

#: Function that returns the bytes of a range, given its offset and length.
ReadRange: TypeAlias = Callable[[int, int], Awaitable[bytes]]


# --- files sent with a call -------------------------------------------------------------------------------------------


async def with_files(
    params: Mapping[str, object],
    files: Sequence[Mapping[str, Any]],
    store: ArtifactStore,
    options: Options,
    capability: Capability,
) -> dict[str, object]:
    """Return ``params`` with each file at its place; files are checked and stored first.

    The place is the ``param`` of a file; without one, the only parameter for a file, else the list ``files``.

    Raises :class:`~transports.errors.TooLarge` for too many files and :class:`~transports.errors.UsageError` for a path
    that is not allowed, and for a place that is not clear. Propagates errors of
    :func:`~transports.routing.accept_files`, with ``details["argument"]``."""
    if len(files) > options.max_files:
        raise TooLarge(f"there are {len(files)} files; at most {options.max_files} are accepted with a call")
    filled: dict[str, Any] = dict(params)
    with ExitStack() as open_files:
        try:
            places = _places(files, capability.input_schema, filled)
            sent = {
                place: _sent_file(file, place, options.roots, open_files)
                for place, file in zip(places, files, strict=True)
            }
            accepted = await accept_files(sent, store=store, limits=options.files, capability=capability.name)
        except ABPError as error:
            error.details["argument"] = "files"
            raise
    for param, file in accepted.items():
        set_path(filled, param.split("."), file.binary)
    return filled


def _places(files: Sequence[Mapping[str, Any]], schema: Mapping[str, object], filled: dict[str, Any]) -> list[str]:
    """Return the place of each file in the parameters. Files that have none are items of the list ``files``, which is
    copied or begun in ``filled``, unless the capability declares a parameter for a file."""
    properties = schema.get("properties")
    declared: list[str] = []
    if isinstance(properties, Mapping):
        declared = [
            name for name, parameter in properties.items() if isinstance(parameter, Mapping) and is_file(parameter)
        ]
    if len(declared) > 1 and any("param" not in file for file in files):
        raise UsageError(f"files: set `param` of each file to one of {', '.join(declared)}")
    default = declared[0] if declared else ""
    places: list[str] = [file.get("param") or default for file in files]
    if "" in places:
        listed = filled.get("files", [])
        if isinstance(listed, list):
            filled["files"] = [*listed]
            numbers = count(len(listed))
            places = [place or f"files.{next(numbers)}" for place in places]
    for place in places:
        if places.count(place) > 1:
            raise UsageError(f"files: several files have the place {place}; set `param` of each")
    return places


def _sent_file(
    file: Mapping[str, Any], place: str, roots: Sequence[Path], open_files: ExitStack
) -> GivenFile | OpenFile:
    name = file.get("name")
    mime_type = file.get("mime_type")
    if "content" in file or "artifact" in file:
        described: dict[str, Any] = {
            "content": file.get("content"),
            "id": file.get("artifact"),
            "filename": name,
            "mimeType": mime_type,
        }
        return cast(GivenFile, {key: value for key, value in described.items() if value is not None})
    refused = UsageError(
        f"files: {place}: this path may not be read; send `content` or `artifact` instead, or have the user allow its "
        "folder with ABP_MCP_ROOTS"
    )
    opened = open_files.enter_context(open_beneath(file["path"], roots, refused))
    return OpenFile(opened, mime_type, name or Path(str(opened.name)).name)


# --- artifacts --------------------------------------------------------------------------------------------------------


class ArtifactTools:
    """Tools for the artifacts of one user. Each raises :class:`~transports.errors.ABPError`."""

    def __init__(self, store: ArtifactStore, options: Options, view: ArtifactView) -> None:
        self._store = store
        self._options = options
        self._view = view

    async def list(self, arguments: Mapping[str, Any]) -> CallToolResult:
        store = self._store
        session = arguments.get("session")
        if session:
            store = store.scoped(Scope(session=session))
        refs = (await store.list())[::-1]
        start = arguments.get("offset", 0)
        lines: list[str] = []
        entries: list[dict[str, object]] = []
        room = self._options.max_answer_bytes - 1024  # for all but the artifacts
        for ref in refs[start : start + arguments.get("limit", 20)]:
            line = f"{ref.id}  {ref.size_bytes:,} bytes  {ref.mime_type}  {ref.filename}"
            if self._view.is_large(ref):
                line += "  large"
            entry = self._view.entry(ref)
            room -= len(line.encode()) + json_size(entry) + 3  # a line break in JSON, and a comma
            if room < 0 and entries:
                break  # a page cut later would lack the right next_offset
            lines.append(line)
            entries.append(entry)
        next_offset = start + len(entries)
        if next_offset < len(refs):
            lines.append(f"{len(refs)} in all; continue with offset {next_offset}")
        else:
            lines.append(f"{len(refs)} in all")
            next_offset = None
        document = {"success": True, "total": len(refs), "next_offset": next_offset, "artifacts": entries}
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    async def read(self, arguments: Mapping[str, Any]) -> CallToolResult:
        ref = await self._store.stat(arguments["id"].removeprefix("artifact://"))
        path = arguments.get("path")
        if path is not None:
            written = await export_artifact(self._store, ref, path, self._options.export_roots)
            document = {"success": True, **self._view.entry(ref), "exported": str(written)}
            text = f"Written: {written} ({ref.size_bytes:,} bytes)"
            return text_result(text, document, self._options.max_answer_bytes)

        async def read_content(offset: int, length: int) -> bytes:
            return await self._store.get(ref, offset=offset, length=length)

        async def read_text(offset: int, length: int) -> bytes:
            return text_of_pdf[offset:][:length]

        read_range: ReadRange = read_content
        if arguments.get("text"):
            text_of_pdf = (await document_text(ref, self._store)).encode()
            ref = replace(ref, mime_type="text/plain", size_bytes=len(text_of_pdf))
            read_range = read_text
        offset = arguments.get("offset", 0)
        length = arguments.get("length")
        return await _read_slice(ref, read_range, offset, length, self._options.max_answer_bytes, self._view)


async def _read_slice(
    ref: ArtifactRef, read_range: ReadRange, offset: int, length: int | None, max_bytes: int, view: ArtifactView
) -> CallToolResult:
    """Return up to ``length`` bytes from ``offset`` in a result of at most ``max_bytes``: a JSON header, then the
    content, whose text is shown to a model without control and hidden characters."""
    limit = (max_bytes - 1024) * 3 // 4
    length = limit if length is None else min(length, limit)
    while True:
        data = await read_range(offset, length)
        text, size = _whole_characters(ref, data, offset + len(data) >= ref.size_bytes)
        end = offset + size
        header = {
            "id": ref.id,
            "mime_type": ref.mime_type,
            "size_bytes": ref.size_bytes,
            "offset": offset,
            "length": size,
            "encoding": "base64" if text is None else "utf-8",
            "next_offset": end if end < ref.size_bytes and size else None,
        }
        url = view.url(ref)
        if url:
            header["url"] = url
        if text is None:
            content = base64.b64encode(data).decode()
        else:
            content = plain_text(text)
            if content != text:
                exact = f"; the resource {ref.uri} has the exact bytes" if view.as_resources else ""
                header["note"] = f"control and hidden characters are not shown{exact}"
        answer = CallToolResult(content=[TextContent(text=encode_json(header).decode()), TextContent(text=content)])
        if len(answer.model_dump_json(by_alias=True).encode()) <= max_bytes:
            return answer
        length //= 2  # a text with many characters that JSON escapes


def _whole_characters(ref: ArtifactRef, data: bytes, last: bool) -> tuple[str | None, int]:
    """Return the text in ``data`` up to its last complete character, and its length in bytes. If ``data`` is not text,
    return ``None`` and its length."""
    if is_textual(ref.mime_type):
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(data, final=last)
        except UnicodeDecodeError:
            return None, len(data)
        size = len(text.encode())
        if size or not data:
            return text, size
    return None, len(data)


# --- export -----------------------------------------------------------------------------------------------------------


async def export_artifact(store: ArtifactStore, ref: ArtifactRef, path: str, roots: Sequence[Path]) -> Path:
    """Write ``ref`` to ``path``, and return the real path.

    The file appears atomically and verified, or not at all, and never replaces another file; a file with the same
    content is left unchanged. No symlink leads out of ``roots``, even if it is created meanwhile. Raises
    :class:`~transports.errors.UsageError` for a path that is not allowed, exists with other content, or cannot be
    written."""
    details = {"argument": "path"}
    refused = UsageError(
        "path: artifacts may not be written there; have the user allow the folder with ABP_MCP_EXPORT_ROOTS, or read "
        "the artifact instead",
        details=details,
    )
    target = Path(path)
    if not target.is_absolute() or "\0" in path or target.name in ("", ".", ".."):
        raise refused
    try:
        with folder_beneath(target.parent, roots, refused) as (real, folder):
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
    temporary = f".{temporary_name()}"
    fd = -1

    def create() -> None:
        nonlocal fd
        fd = folder.create(temporary)

    try:
        try:
            await in_thread(create)  # not interrupted by cancellation, so that the file is always removed below
            async with aclosing(store.open(ref.id)) as pieces:
                async for piece in pieces:
                    await in_thread(write_all, fd, memoryview(piece))
            await in_thread(os.fsync, fd)
        finally:
            if fd >= 0:
                os.close(fd)
        try:
            await in_thread(_rename, temporary, folder, name)
            await in_thread(folder.sync)
        except FileExistsError:
            if await in_thread(_sha256_of, name, folder) != ref.sha256:
                raise
    finally:
        await in_thread(folder.unlink, temporary)


def _rename(temporary: str, folder: Folder, name: str) -> None:
    try:
        folder.link(temporary, folder, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        rename_unreplacing(temporary, folder, folder, name)


def _sha256_of(name: str, folder: Folder) -> str | None:
    """Return the SHA-256 of a regular file, or ``None`` for anything else of that name."""
    try:
        fd = folder.open(name)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


# --- resources --------------------------------------------------------------------------------------------------------


async def list_resources(store: ArtifactStore, cursor: str | None, view: ArtifactView) -> ListResourcesResult:
    try:
        return ListResourcesResult.model_validate(await list_artifacts(store, cursor, view))
    except UsageError as error:
        raise MCPError(INVALID_PARAMS, error.message) from error


async def read_resource(store: ArtifactStore, uri: str, max_bytes: int, view: ArtifactView) -> ReadResourceResult:
    """Return the content of ``artifact://ID``, or of a range of bytes.

    Raises :class:`MCPError` for an unknown or damaged artifact, and above ``max_bytes``."""
    try:
        return ReadResourceResult.model_validate(await read_artifact(store, uri, max_bytes, view))
    except (ArtifactNotFound, Corrupt, TooLarge, UsageError) as error:
        raise _unreadable(uri, error) from error


def _unreadable(uri: str, error: ABPError) -> MCPError:
    return MCPError(INVALID_PARAMS, error.message, {"uri": uri[:300], "code": error.code})


async def read_app_resource(apps: Iterable[App], uri: str, max_bytes: int, view: ArtifactView) -> ReadResourceResult:
    """Return a resource of a connected MCP server. Of several servers, those that list it are tried in turn, or all if
    none does. The content is stored as an artifact, as by the capability ``resources.read``.

    Raises :class:`MCPError` if no server has the resource, and above ``max_bytes``."""
    about = {"uri": uri[:300]}
    owners = [app for app in apps if app.session.resources.available]
    if len(owners) > 1:
        owners = [app for app in owners if await _lists(app, uri)] or owners
    problem = "no connected server has resources; here only artifact://ID can be read"
    for app in owners:
        try:
            result = await app.session.resources.read(uri)
        except ABPError as error:
            problem, about["code"] = error.message, error.code
            continue
        try:
            contents = await _stored_contents(app, result, max_bytes, view)
        except ABPError as error:
            raise _unreadable(uri, error) from error
        return ReadResourceResult.model_validate({"contents": contents})
    raise MCPError(INVALID_PARAMS, problem, about)


async def _lists(app: App, uri: str) -> bool:
    try:
        return any(resource.uri == uri for resource in await app.session.resources.list())
    except ABPError:
        return False


async def _stored_contents(app: App, result: Result, max_bytes: int, view: ArtifactView) -> list[Fields]:
    """Return the contents of a resource: short text from the result, other content from the store."""
    data: Any = result.data
    contents: list[Fields] = []
    for index, item in enumerate(data["contents"]):
        if not isinstance(item, dict):
            continue
        uri, mime_type = str(item.get("uri", "")), item.get("mimeType")
        places = [place for key in ("blob", "text") if (place := f"contents.{index}.{key}") in result.artifacts]
        if not places:
            contents.append({"uri": uri, "mimeType": mime_type, "text": str(item.get("text", ""))})
            continue
        ref = result.artifacts[places[0]]
        max_bytes -= ref.size_bytes
        if max_bytes < 0:
            raise over_limit(ref, max_bytes + ref.size_bytes)
        content = await app.session.store.get(ref)
        contents.append(artifact_contents(uri, ref, content, {**view.meta(ref), "artifact": ref.id}))
    return contents
