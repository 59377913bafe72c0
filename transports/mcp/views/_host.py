"""Host of a view: reads its messages, answers them as a chat host does, and records them (MCP Apps, "Communication
Protocol"). Hosts to imitate are data: what each says of itself, grants and limits (``hosts/*.toml``, docs/views.md)."""

from __future__ import annotations

import asyncio
import datetime
import functools
import inspect
import logging
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
import pybase64
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from ..._internal.files import read_regular
from ..._internal.tasks import in_thread
from ...errors import ABPError, CapabilityError, ProtocolError, UsageError
from ...playwright._scripts import load_script
from ...protocol._find_content import last_segment
from ...protocol._strict_json import decode_json, decode_user_json, encode_json, items_of, members_of, parser_limits
from ...protocol.binary import BinaryData, Handle
from ...protocol.messages import package_version

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]
_DOCTYPE = re.compile(r"\ufeff?\s*<!doctype[^>]{0,1000}>", re.IGNORECASE)


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Source(_Data, frozen=True):
    what: str
    address: str
    day: datetime.date


class HostLimits(_Data, frozen=True):
    """Limits that a host is known to have: ``None`` if there is no limit, or it is unknown."""

    result_characters: Annotated[int, msgspec.Meta(gt=0)] | None = None
    call_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class HostProfile(_Data, frozen=True):
    """What a host offers to views. ``name`` and ``version`` are what the host calls itself. ``capabilities`` are its
    ``hostCapabilities``, word for word: a request whose capability is missing is refused. ``csp_sources`` maps
    directives to sources that the host adds to the policy of each view. ``app_tools`` says whether the host calls the
    tools of views, ``openai`` whether its views have ``window.openai``. ``styles`` maps CSS variables to values.
    ``unknown`` names facts that have no source."""

    name: str
    sources: Annotated[Sequence[Source], msgspec.Meta(min_length=1)]
    capabilities: dict[str, Any]
    display_modes: Annotated[Sequence[DisplayMode], msgspec.Meta(min_length=1)]
    version: str = ""
    app_tools: bool = True
    platform: Literal["web", "desktop", "mobile"] = "desktop"
    user_agent: str = ""
    openai: bool = False
    limits: HostLimits = HostLimits()
    csp_sources: Mapping[str, Sequence[str]] = {}
    styles: Mapping[str, str] = {}
    unknown: Sequence[str] = ()


def host_names() -> Sequence[str]:
    """Return the names of the hosts whose profiles come with the kit, ``spec`` first."""
    names = sorted(file.name.removesuffix(".toml") for file in _hosts_folder().iterdir() if file.name.endswith(".toml"))
    return ["spec", *(name for name in names if name != "spec")]


def read_profile(host: str | Path) -> HostProfile:
    """Read the profile of a host. ``host`` is a name of :func:`host_names`, or a file (``.toml`` or ``.json``). Raises
    :class:`~transports.errors.UsageError`."""
    if isinstance(host, str) and host in host_names():
        return _bundled_profile(host)
    path = Path(host)
    if path.suffix not in (".toml", ".json"):
        raise UsageError(f"unknown host {str(host)!r}; use one of {', '.join(host_names())}, or a path to a TOML file")
    try:
        content = read_regular(path, 1 << 20).removeprefix(BOM_UTF8)
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read ({error.strerror or error}); correct the path") from None
    return _decode_profile(content, path.suffix, str(path))


@functools.cache
def _bundled_profile(name: str) -> HostProfile:
    return _decode_profile((_hosts_folder() / f"{name}.toml").read_bytes(), ".toml", name)


def _hosts_folder() -> Any:
    return resources.files(__package__) / "hosts"


def _decode_profile(content: bytes, suffix: str, name: str) -> HostProfile:
    try:
        if suffix == ".json":
            profile = msgspec.convert(decode_user_json(content, f"the profile {name}"), HostProfile)
        else:
            with parser_limits():
                profile = msgspec.toml.decode(content, type=HostProfile)
    except ValueError as error:
        raise UsageError(f"the profile {name} cannot be read: {error}") from None
    for directive, sources in profile.csp_sources.items():
        is_directive = re.fullmatch(r"[a-z]{1,20}(?:-[a-z]{1,20}){0,3}", directive)
        are_sources = all(re.fullmatch(r"[^\s;,]{1,500}", source) for source in sources)
        if not is_directive or not are_sources:
            raise UsageError(f"the profile {name} has no sources of a policy at csp_sources.{directive}")
    return profile


def with_openai(html: str, properties: Mapping[str, object]) -> str:
    """Add a script to a document that defines ``window.openai`` with these ``properties``."""
    script = (_hosts_folder() / "openai.js").read_text(encoding="utf-8")
    values = encode_json(properties).decode().replace("<", "\\u003c")
    natives = load_script("natives.js")
    doctype = ""
    match = _DOCTYPE.match(html)
    if match is not None:  # a script before the doctype would change how the page is laid out
        doctype = match[0]
    return f"{doctype}<script>({script})(({natives})(false), {values});</script>{html.removeprefix(doctype)}"


logger = logging.getLogger("transports.views")

#: Version of the protocol MCP Apps.
PROTOCOL_VERSION = "2026-01-26"
RequestKind: TypeAlias = Literal[
    "open-link", "message", "model-context", "display-mode", "size", "download-file", "log"
]


@dataclass(frozen=True, slots=True)
class _Limits:
    #: Values in the parameters of one message.
    values: int = 100_000
    #: Requests of each kind that are remembered, and bytes of their parameters. Above a limit the oldest are dropped.
    recorded: int = 1000
    recorded_bytes: int = 16 << 20
    warnings: int = 100
    files: int = 64


_LIMITS = _Limits()


# --- messages ---------------------------------------------------------------------------------------------------------

_JSONObject: TypeAlias = dict[str, Any]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]
_Pixels: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
_Blocks: TypeAlias = Annotated[list[_JSONObject], msgspec.Meta(max_length=1000)]


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    pass


class AppInfo(_Message, frozen=True):
    name: _Name = ""
    version: _Name = ""


class AppAbilities(_Message, frozen=True):
    tools: _JSONObject | None = None
    available_display_modes: list[_Name] | None = None


class Initialize(_Message, frozen=True):
    app_info: AppInfo = AppInfo()
    app_capabilities: AppAbilities = AppAbilities()
    protocol_version: _Name = ""


class OpenLink(_Message, frozen=True):
    url: Annotated[str, msgspec.Meta(max_length=8192)]


class SendMessage(_Message, frozen=True):
    role: Literal["user"]
    content: _Blocks | _JSONObject


class RequestDisplayMode(_Message, frozen=True):
    mode: DisplayMode


class UpdateModelContext(_Message, frozen=True):
    content: _Blocks | None = None
    structured_content: _JSONObject | None = None


class DownloadFile(_Message, frozen=True):
    """Embedded resources, and links to resources of the server."""

    contents: Annotated[list[_JSONObject], msgspec.Meta(min_length=1, max_length=64)]


class SizeChanged(_Message, frozen=True):
    """The size of the view's content in CSS pixels."""

    width: _Pixels | None = None
    height: _Pixels | None = None


class Log(_Message, frozen=True):
    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    data: Any = None
    logger: _Name | None = None


_Params: TypeAlias = (
    Initialize | OpenLink | SendMessage | RequestDisplayMode | UpdateModelContext | DownloadFile | SizeChanged | Log
)


class _Method(NamedTuple):
    """A method that a view may use. ``ability`` is the capability that a host needs for it, empty if every host has the
    method. ``kind`` is the kind under which a refused request is recorded."""

    params: type[_Params] | None = None
    ability: str = ""
    kind: RequestKind | None = None


_METHODS: Mapping[str, _Method] = {
    "ui/initialize": _Method(Initialize),
    "ui/open-link": _Method(OpenLink, "openLinks", "open-link"),
    "ui/message": _Method(SendMessage, "message", "message"),
    "ui/request-display-mode": _Method(RequestDisplayMode),
    "ui/update-model-context": _Method(UpdateModelContext, "updateModelContext", "model-context"),
    "ui/download-file": _Method(DownloadFile, "downloadFile", "download-file"),
    "ui/notifications/size-changed": _Method(SizeChanged),
    "notifications/message": _Method(Log, "logging"),
    "tools/call": _Method(ability="serverTools"),
    "resources/read": _Method(ability="serverResources"),
    "resources/list": _Method(ability="serverResources"),
    "resources/templates/list": _Method(ability="serverResources"),
    "prompts/list": _Method(ability="serverResources"),
}
_OTHER_METHOD = _Method()


class Invalid(Exception):
    """Raised for a message that does not follow the specification. Its text says where."""


def _read_json(text: str) -> dict[str, object]:
    try:
        params = decode_json(text.encode(errors="replace"), max_values=_LIMITS.values)
    except ProtocolError as error:
        raise Invalid(error.message) from None
    if not isinstance(params, dict):
        raise Invalid("params must be an object")
    return params


def _read_params(method: str, params: Mapping[str, object]) -> _Params | None:
    type_of_params = _METHODS.get(method, _OTHER_METHOD).params
    if type_of_params is None:
        return None
    try:
        return msgspec.convert(params, type_of_params)
    except msgspec.ValidationError as error:
        raise Invalid(f"{method}: {error}"[:500]) from None


# --- the host ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """Request of a view, with the host's answer.

    ``params`` are as the view sent them; files are without their bytes. ``call`` is the id of the call that was under
    way. ``answer`` is the result, empty for a notification."""

    kind: RequestKind
    params: Mapping[str, object]
    answer: Mapping[str, object] = field(default_factory=dict)
    call: str | None = None


@dataclass(frozen=True, slots=True)
class _NumberedRequest:
    number: int
    request: ViewRequest
    size: int


class _Record:
    """The remembered requests of one kind. Each kind has its own record, so that a flood of one kind does not push out
    the others."""

    def __init__(self) -> None:
        self.items: deque[_NumberedRequest] = deque()
        self.dropped = 0
        self._bytes = 0

    def add(self, number: int, request: ViewRequest, size: int) -> None:
        """Add a request, and drop the oldest above a limit. ``number`` counts requests of all kinds, ``size`` is in
        bytes."""
        self.items.append(_NumberedRequest(number, request, size))
        self._bytes += size
        while len(self.items) > _LIMITS.recorded or self._bytes > _LIMITS.recorded_bytes:
            self._bytes -= self.items.popleft().size
            self.dropped += 1


Decision: TypeAlias = "bool | Awaitable[bool | None] | None"


@dataclass(frozen=True, slots=True)
class ViewHandlers:
    """Functions that decide on requests of a view. Each gets the request's parameters and returns ``False`` to refuse;
    it may be a coroutine function."""

    on_open_link: Callable[[str], Decision] | None = None
    on_message: Callable[[Mapping[str, object]], Decision] | None = None
    on_display_mode: Callable[[str], Decision] | None = None


@dataclass(frozen=True, slots=True)
class HostContext:
    """What a view learns of its surroundings. ``locale`` is a tag of BCP 47, ``timezone`` a name of IANA, and ``size``
    is in CSS pixels."""

    theme: Literal["light", "dark"] = "light"
    locale: str = "en-US"
    timezone: str = "UTC"
    display_mode: DisplayMode = "inline"
    size: tuple[int, int] = (900, 700)

    def as_json(self, tool: Mapping[str, object], profile: HostProfile) -> dict[str, object]:
        width, height = self.size
        context: dict[str, object] = {
            "toolInfo": {"tool": tool},
            "theme": self.theme,
            "displayMode": self.display_mode,
            "availableDisplayModes": list(profile.display_modes),
            "containerDimensions": {"width": width, "maxHeight": height},
            "locale": self.locale,
            "timeZone": self.timezone,
            "userAgent": profile.user_agent or f"abp-transports/{package_version()}",
            "platform": profile.platform,
            "deviceCapabilities": {"touch": False, "hover": True},
            "safeAreaInsets": {"top": 0, "right": 0, "bottom": 0, "left": 0},
        }
        if profile.styles:
            context["styles"] = {"variables": dict(profile.styles)}
        return context


Relay: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[Mapping[str, object]]]
SaveFile: TypeAlias = Callable[[BinaryData], Awaitable[None]]


class _Refused(Exception):
    """Raised to refuse a request of the view. ``code`` is an error code of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def as_json(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": str(self)}}


def _refusal_of(error: ABPError) -> _Refused:
    """Return the refusal for an error of the server or of the kit. An error of the server keeps its code."""
    code = error.details.get("code")
    if isinstance(error, CapabilityError) and isinstance(code, int):
        return _Refused(code, error.message)
    return _Refused(INTERNAL_ERROR, error.message)


class Host:
    """Host of one view. ``save_file`` stores a file that the view hands out, ``discard`` frees the content of a refused
    file. ``current_call`` returns the id of the call under way."""

    def __init__(
        self,
        context: HostContext,
        tool: Mapping[str, object],
        handlers: ViewHandlers,
        *,
        relay: Relay,
        save_file: SaveFile,
        discard: Callable[[Handle], Awaitable[None]] | None = None,
        profile: HostProfile | None = None,
        current_call: Callable[[], str | None],
    ) -> None:
        self._records: dict[RequestKind, _Record] = {}
        self._request_count = 0
        #: The last context that the view gave its model.
        self.model_context: Mapping[str, object] | None = None
        #: Name, version and abilities that the view gave in ``ui/initialize``.
        self.app_info: Mapping[str, object] = {}
        self.app_capabilities: Mapping[str, object] = {}
        self.has_begun = False
        #: Why ``ui/initialize`` was refused, if it was.
        self.initialize_error = ""
        self.initialized = asyncio.Event()
        #: Set once the view has read ``window.openai``.
        self.openai_used = asyncio.Event()
        self.context = context
        self._tool = tool
        self._handlers = handlers
        self._relay = relay
        self._save_file = save_file
        self._discard = discard
        self._profile = profile or read_profile("spec")
        self._current_call = current_call
        self._warnings: list[str] = []
        self._ignored = 0
        self._modes_of_view: Sequence[str] | None = None

    async def answer(self, method: str, text: str, *, is_request: bool) -> dict[str, object] | None:
        """Answer a message of the view, whose parameters are JSON in ``text``. Return an object with the ``result`` or
        the ``error`` of JSON-RPC, or ``None`` for a notification."""
        try:
            params = _read_json(text)
            if not is_request:
                self._on_notification(method, params)
                return None
            return {"result": await self._answer_request(method, params)}
        except Invalid as invalid:
            refusal = _Refused(INVALID_PARAMS, str(invalid))
            if method == "ui/initialize":
                self.initialize_error = str(invalid)
            if not is_request:
                self._ignored += 1
        except _Refused as error:
            refusal = error
        except ABPError as error:
            refusal = _refusal_of(error)
        except Exception as error:  # the view waits for its answer
            logger.exception("a request of the view failed: %s", method)
            refusal = _Refused(INTERNAL_ERROR, f"the host failed ({type(error).__name__})")
        return refusal.as_json() if is_request else None

    async def _answer_request(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        """Return the result of a request. A method that is not of views is passed on to the server."""
        request = _read_params(method, params)
        if not self._supports(method):
            raise self._refuse_unsupported(method, params)

        match request:
            case Initialize():
                return self._answer_initialize(request, params)
            case OpenLink(url=url):
                is_granted = _is_web_address(url) and await _is_granted(self._handlers.on_open_link, url)
                return self._record("open-link", params, _decision_result(is_granted))
            case SendMessage():
                is_granted = await _is_granted(self._handlers.on_message, params)
                return self._record("message", params, _decision_result(is_granted))
            case RequestDisplayMode(mode=mode):
                return await self._change_display_mode(mode, params)
            case UpdateModelContext():
                self.model_context = params
                return self._record("model-context", params, {})
            case DownloadFile(contents=contents):
                return await self._save_files(contents, params)

        if method == "ping":
            return {}
        if method.startswith("ui/"):
            raise _Refused(METHOD_NOT_FOUND, f"this host has no {method}")
        return await self._ask_server(method, params)

    def _supports(self, method: str) -> bool:
        ability = _METHODS.get(method, _OTHER_METHOD).ability
        return not ability or ability in self._profile.capabilities

    def _refuse_unsupported(self, method: str, params: Mapping[str, object]) -> _Refused:
        """Record a request that this host does not support, and return the refusal to raise."""
        _, ability, kind = _METHODS[method]
        refusal = _Refused(METHOD_NOT_FOUND, f"{self._profile.name} has no {method}: it does not claim {ability}")
        if kind is not None:
            self._record(kind, _without_handles(params), refusal.as_json())
        return refusal

    def _on_notification(self, method: str, params: Mapping[str, object]) -> None:
        if not self._supports(method):
            return
        # This also raises Invalid for parameters of a wrong form.
        _read_params(method, params)
        match method:
            case "ui/notifications/initialized":
                if self.has_begun:
                    self.initialized.set()
            case "ui/notifications/size-changed":
                self._record("size", params, {})
            case "notifications/message":
                self._record("log", params, {})
            # Views with window.openai send this; they need no handshake.
            case "ui/notifications/openai-used":
                self.openai_used.set()
            case "ui/notifications/request-teardown":
                self.warn("the view asked to be closed")

    def _answer_initialize(self, request: Initialize, params: Mapping[str, object]) -> Mapping[str, object]:
        # A second ui/initialize changes nothing that was agreed.
        if not self.has_begun:
            self.has_begun = True
            self.app_info = {"name": request.app_info.name, "version": request.app_info.version}
            self.app_capabilities = members_of(params.get("appCapabilities"))
            self._modes_of_view = request.app_capabilities.available_display_modes
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "hostInfo": {"name": self._profile.name, "version": self._profile.version or package_version()},
            "hostCapabilities": self._profile.capabilities,
            "hostContext": self.context.as_json(self._tool, self._profile),
        }

    async def _ask_server(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        """Return the server's result for a request of the view. The host's limit of time refuses the request; its limit
        of size only adds a warning."""
        limits = self._profile.limits
        try:
            async with asyncio.timeout(limits.call_seconds):
                result = await self._relay(method, params)
        except TimeoutError:
            raise _Refused(
                INTERNAL_ERROR, f"{self._profile.name} waits {limits.call_seconds:g} s for an answer"
            ) from None

        if limits.result_characters is not None:
            characters = len(await in_thread(encode_json, result))
            if characters > limits.result_characters:
                self.warn(
                    f"an answer of {method} has {characters:,} characters; "
                    f"{self._profile.name} takes about {limits.result_characters:,}"
                )
        return result

    async def _change_display_mode(self, mode: DisplayMode, params: Mapping[str, object]) -> Mapping[str, object]:
        is_possible = mode in self._profile.display_modes
        if self._modes_of_view is not None and mode not in self._modes_of_view:
            is_possible = False
        if is_possible and await _is_granted(self._handlers.on_display_mode, mode):
            self.context = replace(self.context, display_mode=mode)
        return self._record("display-mode", params, {"mode": self.context.display_mode})

    async def _save_files(
        self, contents: Sequence[Mapping[str, object]], params: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Save the files that the view hands out. If one file is refused, the view gets an error and all others that
        are not saved yet are dropped."""
        shown_params = _without_handles(params)
        files: list[BinaryData] = []
        try:
            for item in contents:
                files += await self._read_files(item)
            if len(files) > _LIMITS.files:
                raise ProtocolError(f"it came with more than {_LIMITS.files} files")
            for file in files:
                await self._save_file(file)
        except ABPError as error:
            await self._release_content(contents)
            self.warn(f"a file of the view was refused: {error.message}")
            return self._record("download-file", shown_params, {"isError": True})
        except Exception:
            await self._release_content(contents)
            raise
        return self._record("download-file", shown_params, {})

    async def _release_content(self, contents: Sequence[Mapping[str, object]]) -> None:
        """Free the content that is kept in the page for these files."""
        if self._discard is None:
            return
        for item in contents:
            match item:
                case {"resource": {"held": {"id": str(handle)}}}:
                    await self._discard(Handle(f"held:{handle}"))

    async def _read_files(self, item: object) -> list[BinaryData]:
        """Return the files of an item of ``contents``: of a resource its content, of a link what the server has
        there."""
        match item:
            case {"type": "resource_link", "uri": str(uri)}:
                contents = items_of((await self._relay("resources/read", {"uri": uri})).get("contents"))
                return [_file_of(resource) for resource in contents[: _LIMITS.files]]
            case {"type": "resource", "resource": dict(resource)}:
                return [_file_of(resource)]
        raise ProtocolError("it is neither a resource nor a link to one")

    def _record(
        self, kind: RequestKind, params: Mapping[str, object], answer: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Remember a request with its answer, and return the answer."""
        self._request_count += 1
        request = ViewRequest(kind, params, answer, self._current_call())
        record = self._records.setdefault(kind, _Record())
        record.add(self._request_count, request, len(encode_json(params)))
        return answer

    @property
    def requests(self) -> Sequence[ViewRequest]:
        """The last 1,000 requests of each kind, in the order in which the view made them."""
        numbered = [item for record in self._records.values() for item in record.items]
        numbered.sort(key=lambda item: item.number)
        return [item.request for item in numbered]

    def forget_document(self) -> None:
        """Expect a new document's handshake, which changes nothing that was agreed."""
        self.initialized.clear()
        self.openai_used.clear()

    def warn(self, text: str) -> None:
        if len(self._warnings) < _LIMITS.warnings:
            self._warnings.append(text)

    @property
    def warnings(self) -> Sequence[str]:
        dropped = [
            f"{record.dropped} requests of the kind {kind} are not remembered"
            for kind, record in self._records.items()
            if record.dropped
        ]
        if self._ignored:
            dropped.insert(0, f"{self._ignored} notifications of the view are not valid")
        return (*self._warnings, *dropped)


def _decision_result(is_granted: bool) -> dict[str, object]:
    return {} if is_granted else {"isError": True}


async def _is_granted(handler: Callable[[Any], Decision] | None, argument: object) -> bool:
    """Ask the handler for a decision. A request without a handler is granted, and an exception of the handler
    refuses."""
    if handler is None:
        return True
    try:
        is_async = inspect.iscoroutinefunction(handler)
        if is_async:
            decision = handler(argument)
        else:
            # A plain function may use the blocking API, so it gets a thread, as other callbacks do.
            decision = await asyncio.to_thread(handler, argument)
        if inspect.isawaitable(decision):
            decision = await decision
        return decision is not False
    except Exception:
        logger.exception("a handler of the view's requests failed; the request is refused")
        return False


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _without_handles(params: Mapping[str, object]) -> Mapping[str, object]:
    """Return the parameters with the size of each file in place of the handle to its content."""

    def with_size(item: object) -> object:
        match item:
            case {"resource": {"held": {"size": size}, **resource}, **rest}:
                return {**rest, "resource": {**resource, "size": size}}
        return item

    contents = params.get("contents")
    if not isinstance(contents, list):
        return params
    return {**params, "contents": [with_size(item) for item in contents]}


def _file_of(resource: object) -> BinaryData:
    """Return the content of a resource. Raises :class:`~transports.errors.ProtocolError` if it has no content, or if
    the content cannot be decoded."""
    if not isinstance(resource, dict):
        raise ProtocolError("it is not a resource")
    uri = str(resource.get("uri", ""))
    declared_type = resource.get("mimeType")
    mime_type = declared_type if isinstance(declared_type, str) else None
    name = last_segment(uri) or None

    match resource:
        case {"held": {"id": str(handle), "size": int(size)}} if size >= 0:
            return BinaryData(Handle(f"held:{handle}", size), mime_type, size, name)
        case {"blob": str(blob)}:
            try:
                data = pybase64.b64decode(blob, validate=True)
            except ValueError:
                raise ProtocolError(f"{uri[:200] or 'it'} is not valid base64") from None
            return BinaryData(data, mime_type, len(data), name)
        case {"text": str(text)}:
            return BinaryData(text.encode(errors="replace"), mime_type or "text/plain", None, name)
    raise ProtocolError(f"{uri[:200] or 'it'} cannot be decoded")
