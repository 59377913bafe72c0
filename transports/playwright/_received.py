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
    """What ``look`` in ``agent.js`` has seen of an app in the document. ``missing`` are functions that ``window.abp``
    lacks, ``threw`` is the error of an access to it, ``state`` the document's ``readyState``."""

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
    """Return a value of the page as the type ``kind``. ``what`` names the value in errors.

    Raises :class:`~transports.errors.ProtocolError` if the value has another type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"the page interfered with its agent: {what}: {str(error)[:200]}") from None


def parse_json(text: str, kind: type[T], what: str) -> T:
    """Parse JSON of the page into the type ``kind``. Raises as :func:`convert_received`, and for more than 100,000
    values, since the text is parsed in the event loop."""
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
    """Return the app's answer to a request. If the app's ``call`` threw an exception, that is an answer with an error.
    Handles of content in the page begin with ``handle_prefix``.

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
    """Return the answer of an app that threw an error.

    Raises :class:`~transports.errors.ProtocolError` for a request that is not a call."""
    # repr() could escape characters of a secret, which redaction would then not recognise.
    thrown = f"{error_name}: {error_message}" if error_name else f"'{error_message}'"
    if request.type != "capabilities/call":
        raise ProtocolError(f"the app's {request.type} threw {thrown[:300]}")

    # The text must not be cut: redaction does not recognise the beginning of a secret.
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
    """The app clicked a link to a download, which begins after ``wait`` milliseconds. It never begins if it is
    ``dropped``, or if the app ``prevented`` a click that was announced before. If it is not ``sure``, the browser may
    open the link in place of downloading it. ``url`` is the address of the link, unless it is long."""

    url: str = ""
    sure: bool = True
    wait: Annotated[float, msgspec.Meta(ge=0, le=60_000)] = 0.0
    dropped: bool = False
    prevented: bool = False


class Print(Effect):
    """The app printed. ``id`` is the id of the page's snapshot; ``kept`` is false if the page could not be copied."""

    id: int | None = None
    kept: bool = True
    title: str = ""


class FileChooser(Effect):
    multiple: bool | None = None
    directory: bool | None = None
    picker: str | None = None


class Clipboard(Effect):
    """The app wrote to the clipboard, or shared something. The content is held in the page (``id``), sent along
    (``base64``), or neither. ``name`` is the name of a shared file."""

    type: str = ""
    size: Size = 0
    id: str | None = None
    base64: bytes | None = None
    name: str = ""


class Notice(Effect):
    """The app showed a notification or, without a ``title``, asked whether it may show notifications."""

    title: str = ""
    body: str = ""


class Unsent(Effect):
    """An event of the app could not be sent."""

    reason: str = ""


class Tools(msgspec.Struct):
    name: str = ""


class ViewMessage(msgspec.Struct):
    """A message of JSON-RPC from a view. ``params`` is JSON. ``key`` names a request; a notification has none."""

    key: int | None
    method: str
    params: str


class Flood(msgspec.Struct):
    """The agent leaves out some events or, if ``ended``, all events from now on."""

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
    """Return the kind and the payload of an event. The payload is the app's JSON for ``notification``, ``progress`` and
    ``capabilities``, otherwise a class of this module. The kinds ``counts``, ``emitted``, ``unknown`` and ``unloaded``
    come from the harness of embedded apps."""
    max_chars = 8 << 20  # the text is parsed in the event loop
    text = convert_received(text, str, "an event")
    if len(text) > max_chars:
        raise ProtocolError(f"the app sent an event of {len(text):,} characters; the limit is {max_chars:,}")
    kind, payload = parse_json(text, tuple[str, Any], "an event")
    if kind not in _EVENTS:
        raise ProtocolError(f"the page interfered with its agent: an event of the kind {kind[:50]!r}")
    return kind, convert_received(payload, _EVENTS[kind], f"an event of the kind {kind}")
