"""Implementation of the tools for one request: calls, pictures, artifacts, files and connections.

:class:`Tools` dispatches to it. :class:`PictureHosts` and :func:`check_host` restrict hosts, :func:`export_artifact`
and :func:`with_files` move files between the machine and the bridge."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import ipaddress
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ... import playwright as browsers
from ..._internal.tasks import in_thread
from ...artifacts._base import ArtifactStore
from ...artifacts._files import write_all
from ...artifacts._ref import ArtifactRef, Scope
from ...artifacts.local._blobs import NO_LINKS, place
from ...artifacts.local._tree import Folder, folder_beneath, open_beneath, temporary_name
from ...base import ScreenshotOptions
from ...errors import ABPError, StoreError, TooLarge, UsageError
from ...playwright._extension import extension_folder, extension_id
from ...protocol._capabilities import find_capability
from ...protocol._declarations import Capability
from ...protocol._find_content import set_path
from ...protocol._plain_text import is_address, plain_line, plain_tree, redact_url
from ...protocol.schema import is_file, tool_arguments
from ...routing._guard import json_size
from ...routing._result import Result
from ...routing._router import GivenFile, OpenFile, Router, accept_files
from ...routing.http._addresses import is_public, own_addresses
from ...session._settings import Settings
from ..shared._apps import App, listed_in
from ..shared._capability_tools import parameters_line, tool_name
from ..shared._model_schemas import app_arguments
from ..shared._previews import ImageLimits, document_text
from ._access import require_app_scopes, require_scopes
from ._artifacts import ArtifactView
from ._calls import Context, ProgressReporter, Question, ToolCall, takes_tasks
from ._detached import TASK_AFTER, DetachedTools, new_task
from ._options import Options
from ._resources import read_slice
from ._results import call_result, text_result
from ._tool_list import FIXED_TOOLS, CapabilityTool, capability_tools
from ._users import User
from ._views import VIEW_SIZE, open_view, opened_view, view_document

#: Most capabilities of one app in a structured result, and in its text.
_MAX_LISTED, _MAX_NAMED = 300, 40
#: Most characters of the name of an app or a capability, and of a description, in a result.
_MAX_NAME, _MAX_DESCRIPTION = 200, 200


def app_name(app: App) -> str:
    """Return the app's name as one short line."""
    return plain_line(app.session.info.name, _MAX_NAME)


def capability_lines(app: App) -> list[str]:
    """Return the app's first 40 capabilities with their parameters: ``export.pdf(html: string, scale?: number)``."""
    first = islice(app.session.capabilities.values(), _MAX_NAMED)
    return [f"{plain_line(one.name, _MAX_NAME)}({parameters_line(one)})" for one in first]


def app_document(app: App) -> dict[str, object]:
    """Return an app as JSON: session, name or address, transport, warnings and capabilities; of a view, what it asked
    of its host."""
    session = app.session
    supported = [name for name, is_supported in session.features.items() if is_supported]
    return {
        "session": app.key,
        "connected": True,
        "name" if app.is_named else "url": app.shown_target,
        "app": {key: plain_line(text, _MAX_NAME) for key, text in session.info.model_dump(exclude_none=True).items()},
        "features": [plain_line(name, _MAX_NAME) for name in islice(supported, _MAX_NAMED)],
        "transport": session.transport.name,
        "warnings": [plain_line(warning) for warning in session.warnings],
        **({"view": view_document(app)} if app.view else {}),
        "capabilities": [
            {
                "name": plain_line(one.name),
                "description": plain_line(one.description, _MAX_DESCRIPTION),
                "available": one.available,
                **({"parameters": parameters} if (parameters := parameters_line(one)) else {}),
                **({"view": plain_line(one.view, _MAX_NAME)} if one.view else {}),
            }
            for one in (session.capabilities[name] for name in islice(session.capabilities, _MAX_LISTED))
        ],
    }


_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
#: Host names that a browser does not rewrite: browsers take ``\`` for ``/``, decode ``%61`` and fold ``ａ``.
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


#: Arguments of `abp_connect` that say which app, and those of them for an extension.
_TARGETS = ("url", "name", "extensionPath", "extensionId")
_EXTENSIONS = _TARGETS[2:]


def allowed_extension(apps: Sequence[str], argument: str, value: str) -> str:
    """Return the target among the operator's ``apps`` that is the extension in the folder ``value``, or with this id,
    as ``argument`` says. Blocks.

    Raises :class:`~transports.errors.UsageError` without one: an extension is a program, so a model cannot choose it.
    """
    folders: dict[str, Path] = {}
    for target in apps:
        with suppress(UsageError):
            if folder := extension_folder(target):
                folders[target] = folder
    wanted: object = value
    if argument == "extensionPath":
        with suppress(OSError, RuntimeError, ValueError):  # not a valid path, or the home of an unknown user
            wanted = Path(value).expanduser().resolve()
    for target, folder in folders.items():
        if wanted == (folder if argument == "extensionPath" else extension_id(folder)):
            return target
    raise UsageError(
        f"{argument}: this extension may not be loaded, and none is downloaded; ask the user, who can allow an "
        "unpacked one with abp mcp --app extension:FOLDER",
        details={"argument": argument},
    )


def check_host(url: str, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    """Raise :class:`~transports.errors.UsageError` if the host of ``url`` matches no pattern of ``allowed``, or one of
    ``blocked``. A pattern is for a host, or for a host with a port: ``*.example.com``, ``127.0.0.1:8000``. With
    ``allowed`` ``("*",)`` and nothing blocked, any URL passes."""
    if tuple(allowed) == ("*",) and not blocked:
        return
    _check(*_host(url), allowed, blocked)


class PictureHosts:
    """Rules for the hosts of a screenshot: of its page, and of the connections that the page makes.

    ``apps`` are the connected apps: their URLs, and the address at which each was reached. ``private`` are patterns of
    hosts that may have a non-public address; with ``any_address`` every host may.
    """

    def __init__(
        self,
        allowed: Sequence[str],
        blocked: Sequence[str],
        *,
        private: Sequence[str],
        apps: Iterable[tuple[str, tuple[str, int] | None]],
        any_address: bool,
    ) -> None:
        self._allowed, self._blocked = allowed, blocked
        self._private = [pattern for pattern in private if pattern != "*"]
        self._apps = [(*_host(url), reached) for url, reached in apps if _is_web(url)]
        self._any_address = any_address

    async def check(self, url: str) -> None:
        """Check the host of ``url`` with :meth:`addresses`. Raises its errors."""
        await self.addresses(*_host(url))

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses at which this host may be connected.

        Raises :class:`~transports.errors.UsageError` if the host is blocked or unknown. It is also raised for a host
        with a non-public address, unless it matches a ``private`` pattern or is the address of a connected app."""
        host, port = _host(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        _check(host, port, self._allowed, self._blocked)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise UsageError(f"{host}: the host name is not known; correct the address") from None
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        for address in addresses:  # a blocked address stays blocked under any name
            _check(_numeric(address), port, ("*",), self._blocked)
        if self._any_address or _matches(host, port, self._private):
            return addresses
        for known_host, known_port, reached in self._apps:
            if (host, port) == (known_host, known_port) and (own := own_addresses(host, port, reached)):
                return sorted(own)
        if not all(is_public(address) for address in addresses):
            raise UsageError(
                f"{host} (port {port}) is not on the public Internet; connect an app that is there with abp_connect, "
                "or ask the user, who can allow it (allowed_hosts)"
            )
        return addresses


def _check(host: str, port: int, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    if not _matches(host, port, allowed) or _matches(host, port, blocked):
        raise UsageError(
            f"{host} (port {port}) may not be connected; ask the user, who can allow it (allowed_hosts, blocked_hosts)"
        )


def _numeric(address: str) -> str:
    """Return a numeric address in the spelling of :func:`_host`."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _is_web(url: str) -> bool:
    return url.lower().startswith(tuple(f"{scheme}://" for scheme in _PORTS))


def _matches(host: str, port: int, patterns: Sequence[str]) -> bool:
    names = (host,) if ":" in host else (host, f"{host}:{port}")
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in names)


def _host(url: str) -> tuple[str, int]:
    """Return host and port as a browser reads them; an IPv6 address is without brackets."""
    invalid = UsageError(
        "url: write the host plainly, such as app.example, 127.0.0.1 or xn--…, without a user before it"
    )
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise invalid from None
    if "@" in parts.netloc or not host:
        raise invalid
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise invalid from None
        return str(address.ipv4_mapped or address), port
    if not _NAME.fullmatch(host):
        raise invalid
    if re.fullmatch(r"(0x[0-9a-f]*|\d+)", host.rpartition(".")[2]):  # 127.1 and 0x7f.1 are 127.0.0.1
        try:
            return socket.inet_ntoa(socket.inet_aton(host)), port
        except OSError:
            raise invalid from None
    return host, port


async def screenshot_url(
    url: str,
    given: dict[str, object],
    *,
    options: Options,
    store: ArtifactStore,
    apps: Iterable[tuple[str, tuple[str, int] | None]],
    timeout: float | None,
) -> Result:
    """Store a screenshot of ``url`` as the artifact ``image``, taken in a browser that runs for this only; ``timeout``
    in seconds is for the page.

    ``apps`` are the connected apps: their URLs, and the address at which each was reached. Raises
    :class:`~transports.errors.UsageError` if ``url`` is not http(s), if the operator does not allow its host, or if its
    address is not public, unless ``allowed_hosts`` names it or it is one of ``apps``. The same rules hold for all
    connections of the page; refused ones are missing in the picture, with a warning."""
    settings = Settings.load()
    started = time.perf_counter()
    hosts = PictureHosts(
        options.allowed_hosts,
        options.blocked_hosts,
        private=options.private_hosts,
        apps=apps,
        any_address=settings.allow_private_addresses,
    )
    await hosts.check(url)
    headless = settings.headless if options.headless is None else options.headless
    async with browsers.PictureBrowser(headless=headless, timeout=settings.browser_timeout / 1000) as browser:
        picture, refused = await browsers.screenshot_of_url(
            browser,
            url,
            cast(ScreenshotOptions, given),
            hosts.addresses,
            timeout=settings.call_timeout / 1000 if timeout is None else timeout,
        )
    return await Router(store).route(
        {"image": picture, "url": redact_url(url)},
        capability="screenshot",
        transport="playwright",
        started=started,
        warnings=[f"not in the picture: {reason}" for reason in refused],
    )


_PIECE = 1 << 20
#: Details of every refusal: the argument to correct.
_ARGUMENT = {"argument": "path"}


async def export_artifact(store: ArtifactStore, ref: ArtifactRef, path: str, roots: Sequence[Path]) -> Path:
    """Write ``ref`` to ``path``, and return the real path.

    The file appears atomically and verified, or not at all, and never replaces another file; a file with the same
    content is left unchanged. No symlink leads out of ``roots``, even if it is created meanwhile. Raises
    :class:`~transports.errors.UsageError` for a path that is not allowed, exists with other content, or cannot be
    written."""
    refused = UsageError("path: artifacts may not be written there; have the user allow the folder with "
                         "ABP_MCP_EXPORT_ROOTS, or read the artifact instead", details=dict(_ARGUMENT))  # fmt: skip
    target = Path(path)
    if not target.is_absolute() or "\0" in path or target.name in ("", ".", ".."):
        raise refused
    try:
        with folder_beneath(target.parent, roots, refused) as (real, folder):
            await _write(store, ref, folder, target.name)
            return real / target.name
    except FileExistsError:
        message = f"path: {target.name} is there already with other content; choose another name"
        raise UsageError(message, details=dict(_ARGUMENT)) from None
    except (OSError, StoreError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else error.message
        raise UsageError(f"path: cannot write there: {reason}", details=dict(_ARGUMENT)) from error


async def _write(store: ArtifactStore, ref: ArtifactRef, folder: Folder, name: str) -> None:
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
            await in_thread(_name, temporary, folder, name)
            await in_thread(folder.sync)
        except FileExistsError:
            if await in_thread(_digest, name, folder) != ref.sha256:
                raise
    finally:
        await in_thread(folder.unlink, temporary)


def _name(temporary: str, folder: Folder, name: str) -> None:
    try:
        folder.link(temporary, folder, name)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        place(temporary, folder, folder, name)


def _digest(name: str, folder: Folder) -> str | None:
    """Return the SHA-256 of a regular file, or ``None`` for anything else of that name."""
    try:
        fd = folder.open(name)
    except OSError:
        return None
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor has no path
        digest = hashlib.sha256()
        try:
            while piece := file.read(_PIECE):
                digest.update(piece)
        except OSError:
            return None
        return digest.hexdigest()


#: Default artifacts in one page of `abp_artifacts`, and the bytes of a page besides its artifacts.
_PAGE, _HEADER_BYTES = 20, 1024


class ArtifactTools:
    """Tools for the artifacts of one user. Each raises :class:`~transports.errors.ABPError`."""

    def __init__(self, store: ArtifactStore, options: Options, view: ArtifactView) -> None:
        self._store = store
        self._options = options
        self._view = view

    async def list(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Answer ``abp_artifacts``."""
        store = self._store
        if key := arguments.get("session"):
            store = store.scoped(Scope(session=key))
        refs = (await store.list())[::-1]
        start = arguments.get("offset", 0)
        lines, room = list[str](), self._options.max_answer_bytes - _HEADER_BYTES
        entries: list[dict[str, object]] = []
        for ref in refs[start : start + arguments.get("limit", _PAGE)]:
            line, entry = self._line(ref), self._view.entry(ref)
            room -= len(line.encode()) + json_size(entry) + 3  # a line break in JSON, and a comma
            if room < 0 and entries:
                break  # a page cut later would lack the right next_offset
            lines.append(line)
            entries.append(entry)
        end = start + len(entries)
        lines.append(f"{len(refs)} in all" + (f"; continue with offset {end}" if end < len(refs) else ""))
        document = {
            "success": True,
            "total": len(refs),
            "next_offset": end if end < len(refs) else None,
            "artifacts": entries,
        }
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    def _line(self, ref: ArtifactRef) -> str:
        large = "  large" if self._view.is_large(ref) else ""
        return f"{ref.id}  {ref.size_bytes:,} bytes  {ref.mime_type}  {ref.filename}{large}"

    async def read(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Answer ``abp_read_artifact``."""
        store = self._store
        ref = await store.stat(arguments["id"].removeprefix("artifact://"))
        if (path := arguments.get("path")) is not None:
            written = await export_artifact(store, ref, path, self._options.export_roots)
            document = {"success": True, **self._view.entry(ref), "exported": str(written)}
            return text_result(
                f"Written: {written} ({ref.size_bytes:,} bytes)", document, self._options.max_answer_bytes
            )
        whole = (await document_text(ref, store)).encode() if arguments.get("text") else None
        if whole is not None:
            ref = dataclasses.replace(ref, mime_type="text/plain", size_bytes=len(whole))

        async def read(offset: int, length: int) -> bytes:
            return await store.get(ref, offset=offset, length=length) if whole is None else whole[offset:][:length]

        offset, length = arguments.get("offset", 0), arguments.get("length")
        return await read_slice(ref, read, offset, length, self._options.max_answer_bytes, self._view)


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
    with ExitStack() as opened:
        try:
            places = _places(files, capability.input_schema, filled)
            given = {
                place: _given(file, place, options.roots, opened) for place, file in zip(places, files, strict=True)
            }
            accepted = await accept_files(given, store=store, limits=options.files, capability=capability.name)
        except ABPError as error:
            error.details["argument"] = "files"
            raise
    for param, one in accepted.items():
        set_path(filled, param.split("."), one.binary)
    return filled


def _places(files: Sequence[Mapping[str, Any]], schema: Mapping[str, object], filled: dict[str, Any]) -> list[str]:
    """Return the place of each file in the parameters. Files that have none are items of the list ``files``, which is
    copied or begun in ``filled``, unless the capability declares a parameter for a file."""
    properties = schema.get("properties")
    named = properties.items() if isinstance(properties, Mapping) else ()
    declared = [name for name, one in named if isinstance(one, Mapping) and is_file(one)]
    if len(declared) > 1 and any("param" not in file for file in files):
        raise UsageError(f"files: say in `param` which of {', '.join(declared)} each file is")
    places: list[str] = [file.get("param") or next(iter(declared), "") for file in files]
    if "" in places and isinstance(listed := filled.get("files", []), list):
        filled["files"] = [*listed]
        numbers = count(len(listed))
        places = [one or f"files.{next(numbers)}" for one in places]
    for one in places:
        if places.count(one) > 1:
            raise UsageError(f"files: several files are given as {one}; say in `param` where each belongs")
    return places


def _given(file: Mapping[str, Any], place: str, roots: Sequence[Path], opened: ExitStack) -> GivenFile | OpenFile:
    name, mime_type = file.get("name"), file.get("mime_type")
    if "content" in file or "artifact" in file:
        given: dict[str, Any] = {"content": file.get("content"), "id": file.get("artifact")}
        given |= {"filename": name, "mimeType": mime_type}
        return cast(GivenFile, {key: value for key, value in given.items() if value is not None})
    refused = UsageError(f"files: {place}: this path may not be read; send `content` or `artifact` instead, or "
                         "have the user allow its folder with ABP_MCP_ROOTS")  # fmt: skip
    one = opened.enter_context(open_beneath(file["path"], roots, refused))
    return OpenFile(one, mime_type, name or Path(str(one.name)).name)


#: Answer of a tool: its result, a question, or a task.
Answer: TypeAlias = CallToolResult | InputRequiredResult | dict[str, object]


class Tools:
    """Tools for one request of one user. Each raises :class:`~transports.errors.ABPError`, which becomes a result."""

    def __init__(
        self,
        user: User,
        options: Options,
        ctx: Context,
        params: CallToolRequestParams,
        view: ArtifactView,
        reporter: ProgressReporter,
    ) -> None:
        self._user = user
        self._options = options
        self._ctx = ctx
        self._params = params
        self._view = view
        self._reporter = reporter
        self._artifacts = ArtifactTools(user.store, options, view)

    @cached_property
    def _detached(self) -> DetachedTools:
        return DetachedTools(self._user, self._options, self._view, self._shown)

    async def fixed(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call one of :data:`~._tool_list.FIXED_TOOLS`; ``arguments`` must fit its schema."""
        match name:
            case "abp_connect":
                return await self._connect(arguments)
            case "abp_call":
                capability = arguments["capability"]
                app = await self._callable(arguments)
                return await self._call(app, capability, arguments.get("params", {}), arguments)
            case "abp_open_view":
                return await self._open_view(arguments)
            case "abp_status":
                return await self._status(arguments)
            case "abp_disconnect":
                return await self._disconnect(arguments)
            case "abp_render_to_pdf":
                return await self._render(arguments)
            case "abp_screenshot":
                return await self._screenshot(arguments)
            case "abp_artifacts":
                return await self._artifacts.list(arguments)
            case "abp_read_artifact":
                return await self._artifacts.read(arguments)
            case "abp_result":
                return await self._detached.result(arguments, self._ctx, self._reporter, self._params)
            case "abp_cancel":
                return await self._detached.cancel(arguments)
            case _:
                raise AssertionError(name)

    async def capability(self, tool: CapabilityTool, arguments: dict[str, Any]) -> Answer:
        """Call the tool of a capability. The app's schema is checked by the session."""
        params = dict(arguments)
        key, files = params.pop(tool.session, None), params.pop(tool.files, []) if tool.files else []
        own = {"capability": tool.capability, "session": key, "files": files}
        given = {name: value for name, value in own.items() if value is not None}
        tool_arguments(tool.name, FIXED_TOOLS["abp_call"].input_schema, given)
        named = app_arguments(tool.declared, params)
        return await self._call(await self._select(key, tool.capability), tool.capability, named, own)

    async def _find(self, key: object, capability: str | None = None) -> App:
        return await self._user.connections.select(key, self._open, capability)

    async def _select(self, key: object, capability: str | None = None) -> App:
        """Return the app of a call. Its scopes are checked here, since they were unknown if it was closed before."""
        app = await self._find(key, capability)
        require_app_scopes(self._user, self._params.name, app)
        return app

    async def _callable(self, arguments: Mapping[str, Any]) -> App:
        """Return the app of a capability that is named in the arguments, and that may be called."""
        capability = arguments["capability"]
        app = await self._select(arguments.get("session"), capability)  # first: opening an app adds tools
        numbered: list[str] = []
        if self._options.hide_tools:  # most bridges hide none, and so many tools take time to make
            made = capability_tools(self._user.apps, files=self._options.enable_file_tools).values()
            numbered = [tool.name for tool in made if tool.capability == capability]
        if not self._options.shows(tool_name(capability), *numbered):
            raise UsageError(f"{capability} may not be called; ask the user, who can allow it (hide_tools)")
        return app

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call(
        self, app: App, capability: str, params: Mapping[str, object], arguments: Mapping[str, Any]
    ) -> Answer:
        async def work(call: ToolCall) -> Result:
            known = find_capability(app.session.info.name, capability, app.session.capabilities)
            files, store = arguments.get("files", []), self._user.store
            filled = await with_files(params, files, store, self._options, known)
            timeout = arguments.get("timeout")
            result = await app.session.call(
                capability, filled, timeout=timeout, on_progress=call.progress, call_id=call.id
            )
            return self._user.connections.noted(app, result)

        if arguments.get("detach"):
            return await self._detached.start(ToolCall(self._ctx, detached=True), app, capability, work)
        return await self._run(app, work, capability)

    async def _open_view(self, arguments: Mapping[str, Any]) -> Answer:
        app = await self._callable(arguments)
        capability, params = arguments["capability"], arguments.get("params", {})
        options = {name: arguments[name] for name in ("theme", "timeout") if name in arguments}
        size = (arguments.get("width", VIEW_SIZE[0]), arguments.get("height", VIEW_SIZE[1]))
        picture = arguments.get("picture") is True

        async def work(call: ToolCall) -> Result:
            result, call.opened = await open_view(
                self._user.apps, app, capability, params, {**options, "size": size}, picture=picture
            )
            return self._user.connections.noted(app, result)

        return await self._run(app, work)

    async def _render(self, arguments: Mapping[str, Any]) -> Answer:
        app = await self._select(arguments.get("session"))
        options = {**arguments.get("options", {}), "timeout": arguments.get("timeout")}

        async def work(_: ToolCall) -> Result:
            return await app.session.render_to_pdf(arguments["html"], **options)

        return await self._run(app, work)

    async def _screenshot(self, arguments: Mapping[str, Any]) -> Answer:
        view = {key: arguments[key] for key in ("width", "height") if key in arguments}
        options: dict[str, Any] = {**arguments.get("options", {}), **view}
        url, timeout = arguments.get("url"), arguments.get("timeout")
        if url is not None and "session" in arguments:
            raise UsageError("give url for a picture of any page, or session for one of an app, not both")
        app = None if url is not None else await self._select(arguments.get("session"))

        async def work(_: ToolCall) -> Result:
            if app is not None:
                return await app.session.screenshot(timeout=timeout, **options)
            return await screenshot_url(
                str(url),
                options,
                options=self._options,
                store=self._user.store,
                apps=[(app.target, app.session.transport.server_address) for app in self._user.apps.values()],
                timeout=timeout,
            )

        return await self._run(app, work)

    async def _run(
        self, app: App | None, work: Callable[[ToolCall], Coroutine[object, object, Result]], capability: str = ""
    ) -> Answer:
        """Start a call, or resume it with the client's answer to a question; return its result, or its next question.
        ``app`` is ``None`` for a call without an app. A long call of a ``capability`` becomes a task if the client
        supports tasks."""
        if self._params.request_state is not None:
            call = self._user.resume(self._params.request_state)
            call.answer_with(self._params.input_responses)
        else:
            call = ToolCall(self._ctx)
            call.start(listed_in(app.pending_calls if app else self._user.pending_calls, call, work))
        patience = TASK_AFTER if app and capability and takes_tasks(self._ctx) else None
        try:
            outcome = await call.next(self._ctx, self._reporter, patience)
        except ABPError:
            self._user.subscribers.resources_changed()  # files of the call and parts of the answer may be stored
            raise
        if outcome is None:
            assert app is not None
            return new_task(await self._detached.adopt(call, app, capability))
        if isinstance(outcome, Question):
            return InputRequiredResult(
                input_requests={outcome.key: outcome.request()}, request_state=self._user.suspend(call)
            )
        self._user.subscribers.resources_changed()
        return await self._shown(outcome, app, call.opened)

    async def _shown(self, result: Result, app: App | None, opened: App | None = None) -> CallToolResult:
        """Return the result of a call as an MCP result; ``app`` is ``None`` for a call without an app. ``opened`` is
        the view that the call has opened."""
        return await call_result(
            result if self._options.inline_data else await in_thread(result.by_reference),
            session=app.key if app else None,
            store=app.session.store if app else self._user.store,
            max_bytes=self._options.max_answer_bytes,
            image_limits=ImageLimits(self._options.max_image_bytes, self._options.max_total_image_bytes),
            view=self._view,
            opened=opened_view(opened) if opened else None,
        )

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def _open(self, arguments: Mapping[str, object], key: str | None = None) -> App:
        """Connect an app with the arguments of `abp_connect`. ``key`` is its previous session name, if another tool
        opens it again; the token needs the scopes of `abp_connect` in this case too."""
        connect, _ = await self._resolve(arguments)
        return await connect(key)

    async def _resolve(self, arguments: Mapping[str, object]) -> tuple[Callable[[str | None], Awaitable[App]], str]:
        """Return what opens an app with the arguments of `abp_connect`, and its target. Raises
        :class:`~transports.errors.UsageError` for a target that the caller may not connect."""
        require_scopes(self._user, self._options, "abp_connect", arguments)
        options = {name: value for name, value in arguments.items() if name != "new"}
        named = [name for name in _TARGETS if name in options]
        if len(named) != 1:
            raise UsageError(
                "give one of url, extensionPath, extensionId, and the name of an app that abp_status lists"
            )
        (kind,) = named
        target = str(options.pop(kind))
        if "abpPage" in options:
            if kind not in _EXTENSIONS:
                raise UsageError("abpPage is for an extension; leave it out", details={"argument": "abpPage"})
            options["extension_page"] = options.pop("abpPage")
        if kind == "name":
            return partial(self._user.connect_named, target, options), target
        if kind in _EXTENSIONS:
            target = await in_thread(allowed_extension, self._options.apps, kind, target)
            return partial(self._user.connect, target, options), target
        if not is_address(target):
            raise UsageError(
                "url must begin with http://, https://, ws:// or wss://; others are for the user (abp mcp --app)",
                details={"argument": "url"},
            )
        check_host(target, self._options.allowed_hosts, self._options.blocked_hosts)
        return partial(self._user.connect, target, options), target

    async def _connect(self, arguments: Mapping[str, object]) -> CallToolResult:
        connect, target = await self._resolve(arguments)
        found = None if arguments.get("new") is True else await self._user.connections.open_already(target, arguments)
        app = found or await connect(None)
        if found is None:
            await self._user.connections.keep(app, {name: one for name, one in arguments.items() if name != "new"})
        lines = capability_lines(app)
        more = len(app.session.capabilities) - len(lines)
        text = (
            f"{'Already connected' if found else 'Connected'}: {app_name(app)} (session {app.key}, "
            f"{app.session.transport.name}){'; `new`: true opens it once more' if found else ''}\n"
            f"Capabilities: {', '.join(lines)}{f' and {more} more' if more else ''}\n"
            "Each is a tool of its own now; abp_call calls any of them."
        )
        document = {"success": True, "new": found is None, **app_document(app)}
        return text_result(text, document, self._options.max_answer_bytes)

    async def _status(self, arguments: Mapping[str, Any]) -> CallToolResult:
        apps, capability = self._user.apps, arguments.get("capability")
        if capability is not None:
            app = await self._find(arguments.get("session"), capability)
            one = find_capability(app.session.info.name, capability, app.session.capabilities)
            document = {"success": True, "session": app.key, "capability": plain_tree(one.model_dump(by_alias=True))}
            return text_result(f"{plain_line(one.name)}: {one.description}", document, self._options.max_answer_bytes)
        closed = await self._user.connections.closed()
        chosen = [await self._find(key)] if (key := arguments.get("session")) else list(apps.values())
        lines = [f"{app.key}: {app_name(app)} at {app.shown_target}" for app in chosen]
        lines += [f"  {', '.join(capability_lines(app))}" for app in chosen[:1]]
        lines += [f"{one.session}: was connected before, opened again by its first call" for one in closed]
        lines = lines or ["No app is connected; call abp_connect with the address of one."]
        sessions: list[dict[str, object]] = [app_document(app) for app in chosen]
        sessions += [{"session": one.session, "connected": False} for one in closed if not key]
        calls = await self._detached.documents()
        document = {"success": True, "sessions": sessions, "calls": calls}
        lines += [f"call {one['call']}: {one['capability']} {one['status']}" for one in calls]
        if named := sorted(self._user.named):
            document["apps"] = named
            lines.append(f"Apps to connect by name: {', '.join(named)}.")
        if retention := self._user.store.retention:
            document["retention"] = f"each artifact is {retention}"
            lines.append(f"Each artifact is {retention}.")
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    async def _disconnect(self, arguments: Mapping[str, Any]) -> CallToolResult:
        closed = [one.session for one in await self._user.connections.closed()]
        if (key := arguments.get("session")) in closed:
            self._user.connections.forget(key)
            text = f"Disconnected session {key}, which was not open; its artifacts are kept."
            return text_result(text, {"success": True, "session": key}, self._options.max_answer_bytes)
        app = self._user.apps.select(key)
        await self._user.apps.disconnect(app)
        text = f"Disconnected {app_name(app)} (session {app.key}); its artifacts are kept."
        return text_result(text, {"success": True, "session": app.key}, self._options.max_answer_bytes)
