"""Validation of all messages of a page: replies, events, and return values of the agent.

The app's scripts share a world with the agent and can change its output (a ``toJSON`` of ``Object.prototype`` is
enough). So an unexpected value fails its call with a :class:`~transports.errors.ProtocolError`, and an unexpected event
is dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import pybase64

from ..errors import ProtocolError
from ..protocol._find_content import Place, replace_values
from ..protocol._strict_json import MAX_LISTED, MAX_ON_LOOP, MAX_VALUES, decode_json
from ..protocol.binary import BinaryData, Broken, Handle
from ..protocol.messages import Message, misdirected

T = TypeVar("T")
#: Prefix of handles of content held by the page's own agent.
HELD = "held:"
#: Size of content in bytes. JavaScript counts exactly only up to 2**53.
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


# --- values -----------------------------------------------------------------------------------------------------------


class Held(msgspec.Struct):
    """Content that the page holds. ``size`` is in bytes."""

    id: str
    size: Size
    type: str = ""


class AppState(msgspec.Struct):
    """Whether the document holds an app. See ``look`` in ``agent.js``. ``state`` is the document's ``readyState``."""

    protocol: Literal["abp", "webmcp"]
    present: bool
    missing: list[str]
    threw: str | None
    title: str
    state: str
    webmcp: bool = False

    @property
    def is_app(self) -> bool:
        return self.protocol == "webmcp" or (self.present and not self.missing and self.threw is None)


def convert_received(value: object, kind: type[T], what: str) -> T:
    """Raises :class:`~transports.errors.ProtocolError`. ``what`` names the value in it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"the page interfered with its agent: {what}: {str(error)[:200]}") from None


def parse_json(text: str, kind: type[T], what: str) -> T:
    """The limit is 100,000 values, since the text is parsed in the event loop. Raises as :func:`convert_received`."""
    return convert_received(decode_json(text, max_values=MAX_ON_LOOP), kind, what)


def decode_base64(text: str) -> bytes:
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError as error:
        raise ProtocolError(f"the page interfered with its agent: content that is not base64 ({error})") from None


# --- replies ----------------------------------------------------------------------------------------------------------


class _Binary(msgspec.Struct, array_like=True):
    path: tuple[str | int, ...]
    kind: Literal["base64", "held", "broken"]
    value: str
    mime_type: str = ""
    name: str = ""
    size: Size | None = None


class _Rest(msgspec.Struct):
    binaries: list[_Binary] = []
    warnings: list[str] = []


class _Reply(msgspec.Struct):
    """The agent's reply: ``answer`` with ``rest``, or why there is none: the agent ``refused`` the answer, the app
    ``threw`` an error called ``name``, or the request was not for the document's origin (``denied``)."""

    answer: Any = None
    rest: _Rest | None = None
    refused: str | None = None
    threw: str | None = None
    name: str = ""
    denied: str | None = None


def is_reference(answer: str) -> bool:
    return answer.startswith('{"id":')


def parse_reply(request: Message, text: str | bytes, *, handle_prefix: str = HELD) -> Message:
    """An exception of the app's ``call`` is a failed answer. Handles begin with ``handle_prefix``.

    Raises :class:`~transports.errors.UsageError` if the document's origin is not among the request's origins."""
    max_values = MAX_VALUES if request.type == "capabilities/call" else MAX_LISTED
    reply = convert_received(decode_json(text, max_values=max_values), _Reply, f"the reply to {request.type}")
    if reply.refused is not None:
        raise ProtocolError(f"{reply.refused[:500]}; nothing was taken from it")
    if reply.denied is not None and request.origins is not None:
        raise misdirected(reply.denied)
    if reply.threw is not None:
        return _failed_answer(request, reply.name, reply.threw)
    if reply.rest is None:
        raise ProtocolError(f"the page interfered with its agent: the reply to {request.type} holds no answer")

    answer = reply.answer
    if reply.rest.binaries:
        answer = _with_contents(answer, reply.rest.binaries, handle_prefix)
    warnings = reply.rest.warnings
    if warnings:
        warnings = [warning[:1000] for warning in warnings[:100]]
    return Message(f"{request.type}-result", answer, id=request.id, warnings=warnings)


def _with_contents(answer: object, binaries: list[_Binary], handle_prefix: str) -> object:
    contents: dict[Place, object] = {binary.path: _binary_of(binary, handle_prefix) for binary in binaries}
    try:
        return replace_values(answer, contents)
    except (KeyError, RecursionError):
        raise ProtocolError("the page interfered with its agent: content in a place that is not there") from None


def _failed_answer(request: Message, error_name: str, error_message: str) -> Message:
    """Raises :class:`~transports.errors.ProtocolError` for a request that is not a call."""
    # Not by repr(): it may escape characters of a secret, which redaction would not recognise then.
    thrown = f"{error_name}: {error_message}" if error_name else f"'{error_message}'"
    if request.type != "capabilities/call":
        raise ProtocolError(f"the app's {request.type} threw {thrown[:300]}")

    # Not cut: the beginning of a secret would not be recognised, either.
    error = {"code": "OPERATION_FAILED", "message": f"the app threw {thrown}"}
    return Message("capabilities/call-result", {"success": False, "error": error}, id=request.id)


def _binary_of(binary: _Binary, handle_prefix: str) -> BinaryData | Broken:
    if binary.kind == "broken":
        return Broken(binary.value)
    if binary.size is None:
        raise ProtocolError("the page interfered with its agent: content without a size")

    content: Handle | bytes
    if binary.kind == "base64":
        content = decode_base64(binary.value)
    else:
        content = Handle(f"{handle_prefix}{binary.value}", binary.size)
    return BinaryData(content, binary.mime_type or None, binary.size, binary.name or None)


# --- events -----------------------------------------------------------------------------------------------------------


class Elicitation(msgspec.Struct):
    id: str
    request: Any


class Effect(msgspec.Struct):
    call: str | None = None


class Download(Effect):
    """The download begins after ``wait`` milliseconds, or never if it is ``dropped``, or if the app ``prevented`` the
    click, which was announced before. If it is not ``sure``, the browser may open the link in place of downloading it.
    ``url`` is that of the link, unless it is long."""

    url: str = ""
    sure: bool = True
    wait: Annotated[float, msgspec.Meta(ge=0, le=60_000)] = 0.0
    dropped: bool = False
    prevented: bool = False


class Print(Effect):
    """The app printed. ``id`` is that of the snapshot of the page, which may not be ``kept``."""

    id: int | None = None
    kept: bool = True
    title: str = ""


class FileChooser(Effect):
    multiple: bool | None = None
    directory: bool | None = None
    picker: str | None = None


class Clipboard(Effect):
    """Content is held in the page (``id``), sent along (``base64``), or neither. ``name`` is a shared file's."""

    type: str = ""
    size: Size = 0
    id: str | None = None
    base64: bytes | None = None
    name: str = ""


class Notice(Effect):
    """The app showed a notification. Without a ``title`` it is the question whether the app may show notifications."""

    title: str = ""
    body: str = ""


class Unsent(Effect):
    reason: str = ""


class Tools(msgspec.Struct):
    name: str = ""


class ViewMessage(msgspec.Struct):
    """A message of JSON-RPC from a view. ``params`` is JSON. ``key`` names a request; a notification has none."""

    key: int | None
    method: str
    params: str


class Flood(msgspec.Struct):
    """Some events are left out, or all from now on if it ``ended``."""

    ended: bool = False


_EVENTS: dict[str, Any] = {
    "notification": Any,
    "progress": Any,
    "capabilities": Any,
    "elicitation": Elicitation,
    "print": Print,
    "frameprint": Effect,
    "windowprint": Effect,
    "download": Download,
    "filechooser": FileChooser,
    "clipboard": Clipboard,
    "share": Clipboard,
    "notice": Notice,
    "submitting": Effect,
    "tools": Tools,
    "flood": Flood,
    "counts": dict[str, int],
    "emitted": Size,
    "unknown": str,
    "unfinished": Effect,
    "unsent": Unsent,
    "unloaded": None,
    "reloaded": None,
    "view": ViewMessage,
}


def parse_event(text: object) -> tuple[str, Any]:
    """The payload is the app's own JSON for ``notification``, ``progress`` and ``capabilities``, otherwise a class of
    this module. The kinds ``counts``, ``emitted``, ``unknown`` and ``unloaded`` come from the harness of embedded apps.
    """
    max_chars = 8 << 20  # it is parsed in the event loop
    text = convert_received(text, str, "an event")
    if len(text) > max_chars:
        raise ProtocolError(f"the app sent an event of {len(text):,} characters; the limit is {max_chars:,}")
    kind, payload = parse_json(text, tuple[str, Any], "an event")
    if kind not in _EVENTS:
        raise ProtocolError(f"the page interfered with its agent: an event of the kind {kind[:50]!r}")
    return kind, convert_received(payload, _EVENTS[kind], f"an event of the kind {kind}")
