"""JSON-RPC messages as bytes: one decode function with limits, ids, and messages of the proxy's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

import msgspec

from ....errors import ProtocolError, TooLarge
from ....mcp._stdio import MessageEnds
from ....protocol._strict_json import (
    MAX_JSON_DEPTH,
    MAX_VALUES,
    encode_json,
    has_more_levels,
    has_more_values,
    in_thread_if_long,
    without_half_pairs,
)

T = TypeVar("T")

#: Largest message in bytes: a file of 100 MiB as base64, with its message.
MAX_BYTES = 137 << 20
#: Error codes of JSON-RPC. These and the names below are repeated here, since loading the SDK takes longer than
#: anything else that a proxy does.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
#: Error code for a request to which the server has no answer.
UNAVAILABLE = -32000
#: Fields of ``_meta`` that name the protocol version of a request, and the subscription of a notification.
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
#: Protocol versions without a handshake and sessions.
STATELESS_VERSIONS = ("2026-07-28",)
#: First protocol version with links to resources as content.
LINKS_SINCE = "2025-06-18"

#: An id, or a token of progress, as a JSON value: ``1`` and ``1.0`` are equal, ``1`` and ``"1"`` are not.
Key: TypeAlias = "str | int | float | tuple[bytes]"
#: Function that takes a message of the server, of which only the ends are known if it is over the limit.
Deliver: TypeAlias = "Callable[[bytes | MessageEnds], Awaitable[None]]"


class Envelope(msgspec.Struct):
    """The fields of a message, each as it is written."""

    jsonrpc: object = None
    id: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class Params(msgspec.Struct):
    name: str = ""
    uri: str = ""
    cursor: str | None = None
    task_id: str = msgspec.field(name="taskId", default="")
    request_id: msgspec.Raw = msgspec.field(name="requestId", default=msgspec.Raw())
    progress_token: msgspec.Raw = msgspec.field(name="progressToken", default=msgspec.Raw())
    meta: dict[str, msgspec.Raw] = msgspec.field(name="_meta", default_factory=dict)

    @property
    def version(self) -> str:
        """Protocol version of a request without a handshake; empty for any other."""
        try:
            return msgspec.json.decode(self.meta.get(PROTOCOL_VERSION, b'""'), type=str)
        except ValueError:
            return ""


@dataclass(frozen=True)
class Message:
    """A message of JSON-RPC, of which only the envelope is decoded. ``key`` is ``None`` without an id."""

    raw: bytes
    envelope: Envelope
    key: Key | None

    @property
    def method(self) -> str:
        return self.envelope.method or ""

    @property
    def is_answer(self) -> bool:
        envelope = self.envelope
        return envelope.method is None and self.key is not None and bool(envelope.result or envelope.error)

    @property
    def is_request(self) -> bool:
        return self.envelope.method is not None and self.key is not None

    @cached_property
    def params(self) -> Params:
        if self.envelope.params:
            try:
                return _PARAMS_DECODER.decode(self.envelope.params)
            except (ValueError, RecursionError):
                pass
        return Params()


_ENVELOPE_DECODER = msgspec.json.Decoder(Envelope)
_BATCH_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
_PARAMS_DECODER = msgspec.json.Decoder(Params)


async def read_message(raw: bytes) -> Message:
    """Decode the envelope of a message. Raises :class:`~transports.errors.TooLarge` above a limit, and
    :class:`~transports.errors.ProtocolError` for bytes that are not a JSON-RPC message."""
    return await in_thread_if_long(_decode_message, raw)


def _decode_message(raw: bytes) -> Message:
    require_limits(raw)
    try:
        envelope = _decode(_ENVELOPE_DECODER, raw)
        return Message(raw, envelope, key_of(envelope.id))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON-RPC message: {error}") from error


async def read_batch(raw: bytes) -> list[bytes]:
    """Return the messages of a batch, undecoded. Raises the errors of :func:`read_message`. A batch within a batch is
    refused, since 500 levels would be decoded 500 times."""
    return await in_thread_if_long(_decode_batch, raw)


def _decode_batch(raw: bytes) -> list[bytes]:
    require_limits(raw)
    try:
        items = [bytes(item) for item in _BATCH_DECODER.decode(raw)]
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a batch: {error}") from error
    if any(item[:1] == b"[" for item in items):
        raise ProtocolError("a batch in a batch")
    return items


def require_limits(raw: bytes) -> None:
    """Raises :class:`~transports.errors.TooLarge` for too many bytes, values or levels."""
    if len(raw) > MAX_BYTES:
        raise over_limit(MAX_BYTES, "bytes")
    if has_more_values(raw, MAX_VALUES):
        raise over_limit(MAX_VALUES, "values")
    if has_more_levels(raw, MAX_JSON_DEPTH):
        raise over_limit(MAX_JSON_DEPTH, "levels")


def over_limit(limit: int, unit: str) -> TooLarge:
    return TooLarge(f"the message has more than {limit:,} {unit}, which is the limit; ask for less")


# --- objects ----------------------------------------------------------------------------------------------------------

#: The fields of a JSON object, each as it is written.
Fields: TypeAlias = "dict[str, msgspec.Raw]"
FIELDS_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def fields_of(raw: bytes | msgspec.Raw) -> Fields:
    """Return the fields of a JSON object. Lone surrogates become U+FFFD. Raises ``ValueError`` for anything but a JSON
    object."""
    return _decode(FIELDS_DECODER, raw)


def _decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except ValueError:  # perhaps only because of lone surrogates
        return decoder.decode(without_half_pairs(bytes(raw)))


def fields_in(fields: Fields, name: str) -> Fields:
    """Return the fields of the object that is the member ``name``; none if it is missing or not an object."""
    try:
        return FIELDS_DECODER.decode(fields[name])
    except (KeyError, ValueError):
        return {}


def to_raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(encode_json(value))


# --- ids --------------------------------------------------------------------------------------------------------------


def key_of(raw_id: bytes | msgspec.Raw) -> Key | None:
    """Return the key of an id in JSON. Return ``None`` for an empty text and for ``null``. Raises ``ValueError`` for
    invalid JSON."""
    json_id = bytes(raw_id)
    if not json_id or json_id == b"null":
        return None
    value = msgspec.json.decode(json_id)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    # Not a valid id, but the client may use one. Its bytes in a tuple never equal a valid id.
    return (encode_json(value),)


def key_or_none(raw_id: bytes | msgspec.Raw) -> Key | None:
    """Return the key as :func:`key_of` does, but ``None`` for invalid JSON."""
    try:
        return key_of(raw_id)
    except ValueError:
        return None


# --- messages of the proxy --------------------------------------------------------------------------------------------


def result_message(raw_id: bytes, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (raw_id or b"null", result)


def error_message(raw_id: bytes, number: int, message: str, data: Mapping[str, object] | None = None) -> bytes:
    """``raw_id`` is the id in JSON, empty for an unknown id."""
    error: dict[str, object] = {"code": number, "message": message}
    if data:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (raw_id or b"null", encode_json(error))
