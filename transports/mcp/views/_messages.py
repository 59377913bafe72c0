"""Messages of a view, read into typed values at one door (MCP Apps, "Communication Protocol")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from ...errors import ProtocolError
from ...protocol._strict_json import decode_json

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]
_T = TypeVar("_T")

#: Values in the parameters of one message.
_MAX_VALUES = 100_000
_JSONObject: TypeAlias = dict[str, Any]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]
_Pixels: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class Invalid(Exception):
    """A message that is not as the specification has it. Its text says where."""


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    pass


class AppInfo(_Message, frozen=True):
    """Name and version of the view."""

    name: _Name = ""
    version: _Name = ""


class AppAbilities(_Message, frozen=True):
    """Abilities of the view: ``tools`` if it has tools, and its display modes."""

    tools: _JSONObject | None = None
    available_display_modes: list[_Name] | None = None


class Initialize(_Message, frozen=True):
    """``ui/initialize``."""

    app_info: AppInfo = AppInfo()
    app_capabilities: AppAbilities = AppAbilities()
    protocol_version: _Name = ""


class OpenLink(_Message, frozen=True):
    """``ui/open-link``."""

    url: Annotated[str, msgspec.Meta(max_length=8192)]


class SendMessage(_Message, frozen=True):
    """``ui/message``."""

    role: Literal["user"]
    content: Annotated[list[_JSONObject], msgspec.Meta(max_length=1000)] | _JSONObject


class RequestDisplayMode(_Message, frozen=True):
    """``ui/request-display-mode``."""

    mode: DisplayMode


class UpdateModelContext(_Message, frozen=True):
    """``ui/update-model-context``."""

    content: Annotated[list[_JSONObject], msgspec.Meta(max_length=1000)] | None = None
    structured_content: _JSONObject | None = None


class DownloadFile(_Message, frozen=True):
    """``ui/download-file``: embedded resources, and links to resources of the server."""

    contents: Annotated[list[_JSONObject], msgspec.Meta(min_length=1, max_length=64)]


class SizeChanged(_Message, frozen=True):
    """``ui/notifications/size-changed``, in CSS pixels."""

    width: _Pixels | None = None
    height: _Pixels | None = None


class Log(_Message, frozen=True):
    """``notifications/message``."""

    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    data: Any = None
    logger: _Name | None = None


class Ping(_Message, frozen=True):
    """``ping``."""


class Initialized(_Message, frozen=True):
    """``ui/notifications/initialized``."""


class RequestTeardown(_Message, frozen=True):
    """``ui/notifications/request-teardown``."""


class OpenAIUsed(_Message, frozen=True):
    """The view has read ``window.openai``, which needs no handshake."""


class ForServer(_Message, frozen=True):
    """A request that the server of the view answers."""

    method: str
    params: Mapping[str, object]


Request: TypeAlias = (
    Initialize | OpenLink | SendMessage | RequestDisplayMode | UpdateModelContext | DownloadFile | Ping | ForServer
)
Notification: TypeAlias = Initialized | SizeChanged | Log | RequestTeardown | OpenAIUsed

_REQUESTS: Mapping[str, type[Request]] = {
    "ui/initialize": Initialize,
    "ui/open-link": OpenLink,
    "ui/message": SendMessage,
    "ui/request-display-mode": RequestDisplayMode,
    "ui/update-model-context": UpdateModelContext,
    "ui/download-file": DownloadFile,
    "ping": Ping,
}
_NOTIFICATIONS: Mapping[str, type[Notification]] = {
    "ui/notifications/initialized": Initialized,
    "ui/notifications/size-changed": SizeChanged,
    "ui/notifications/request-teardown": RequestTeardown,
    "ui/notifications/openai-used": OpenAIUsed,
    "notifications/message": Log,
}


def read_params(text: str) -> dict[str, object]:
    """Return the parameters in a message's JSON. Raises :class:`Invalid`."""
    try:
        params = decode_json(text.encode(errors="replace"), at_most=_MAX_VALUES)
    except ProtocolError as error:
        raise Invalid(error.message) from None
    if not isinstance(params, dict):
        raise Invalid("params is an object")
    return params


def read_request(method: str, params: Mapping[str, object]) -> Request | None:
    """Return a request of a view, or ``None`` for a method of the host that there is not. Raises :class:`Invalid`."""
    if method in _REQUESTS:
        return _convert(method, params, _REQUESTS[method])
    if method.startswith("ui/"):
        return None
    return ForServer(method, params)


def read_notification(method: str, params: Mapping[str, object]) -> Notification | None:
    """Return a notification of a view, or ``None`` for one that the host has no use for. Raises :class:`Invalid`."""
    if method not in _NOTIFICATIONS:
        return None
    return _convert(method, params, _NOTIFICATIONS[method])


def _convert(method: str, params: Mapping[str, object], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"{method}: {error}"[:500]) from None
