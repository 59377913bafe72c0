"""What travels: one :class:`Message` per request, reply or event, and models of the ABP payloads (PROTOCOL). No I/O.

The models are lenient where an app's meaning is clear and refuse what would have to be guessed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from ..binary import BinaryData
from ..binary.detect import Found, find, replace
from ..errors import ABPError, CapabilityError, ProtocolError

__all__ = [
    "PROTOCOL_VERSION",
    "Answer",
    "AppInfo",
    "Capability",
    "Effect",
    "ElicitationRequest",
    "ErrorInfo",
    "Initialized",
    "JSONValue",
    "Manifest",
    "Message",
    "Notification",
    "Progress",
    "Requirement",
    "Resource",
    "ResourceTemplate",
    "decode_json",
    "encode_json",
    "parse",
]

PROTOCOL_VERSION = "0.1"
#: Characters of JSON that are read without collecting garbage meanwhile.
_MUCH = 1 << 20

JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"


@dataclass(frozen=True, slots=True)
class Effect:
    """Something an app did beside answering (``docs/side-effects.md``).

    ``kind`` is ``dialog``, ``print``, ``download``, ``popup``, ``filechooser``, ``clipboard``, or ``more`` with the
    ``count`` of those not told; ``call`` is the id of the call that was running. ``detail`` is small.
    """

    kind: str
    call: str | None = None
    detail: Mapping[str, JSONValue] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """The same as JSON values."""
        return {"kind": self.kind, "call": self.call, "detail": dict(self.detail)}


@dataclass(slots=True)
class Message:
    """One envelope ``{type, id?, timestamp, payload}``.

    ``content`` lists the binaries in the parameters of a call: where they stand (below ``params``), a
    :class:`~transports.BinaryData` stands in the tree. ``outputs`` is what the far side produced beside its
    answer (a printed page), ``effects`` what it did, ``warnings`` what it could not send as it was.
    """

    type: str
    payload: object = None
    id: str | None = None
    timestamp: int = field(default_factory=lambda: int(time.time() * 1000))
    content: Sequence[Found] = ()
    outputs: Sequence[BinaryData] = ()
    effects: Sequence[Effect] = ()
    warnings: Sequence[str] = ()


class _Model(BaseModel):
    """A field that is null counts as missing, a number where text belongs as its text, and text where an object
    belongs as the field named ``_alone`` of it."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )
    _alone: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _forgiven(cls, value: object) -> object:
        if isinstance(value, str) and cls._alone:
            value = {cls._alone: value}
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _mapping(value: object) -> object:
    return value if isinstance(value, Mapping) else {}


_Mapping = Annotated[dict[str, object], BeforeValidator(_mapping)]


class AppInfo(_Model):
    """Who the app says it is."""

    _alone = "name"
    id: str = ""
    name: str = ""
    version: str = ""


class Requirement(_Model):
    """What a capability needs before it is available."""

    _alone = "description"
    type: str = ""
    description: str = ""
    met: bool = False
    resolution: str | None = None


class Capability(_Model):
    """One capability as the app lists it; most fields are optional in the wild. ``annotations`` are hints of an MCP
    server (``readOnlyHint``, ``destructiveHint``, …)."""

    _alone = "name"
    name: str
    title: str = ""
    description: str = ""
    input_schema: _Mapping = Field(default_factory=dict)
    output_schema: _Mapping = Field(default_factory=dict)
    available: bool = True
    requirements: list[Requirement] = Field(default_factory=list)
    experimental: bool = False
    deprecated: bool = False
    deprecation_message: str | None = None
    alternatives: list[str] = Field(default_factory=list)
    annotations: _Mapping = Field(default_factory=dict)


class Resource(_Model):
    """A resource that an MCP server lists. ``size`` in bytes is what the server says."""

    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: Annotated[int, Field(ge=0)] | None = None


class ResourceTemplate(_Model):
    """A kind of resources: ``uri_template`` as in RFC 6570."""

    uri_template: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None


class Initialized(_Model):
    """Answer to ``initialize``. ``capabilities`` are not read here: there may be very many."""

    session_id: str = ""
    protocol_version: str = ""
    app: AppInfo = Field(default_factory=AppInfo)
    capabilities: list[object] = Field(default_factory=list)
    features: _Mapping = Field(default_factory=dict)


class Manifest(_Model):
    """What an app's manifest says (PROTOCOL "Discovery"): ``abp`` is its protocol version."""

    abp: str = ""
    app: AppInfo = Field(default_factory=AppInfo)
    capabilities: list[Capability] = Field(default_factory=list)


class ErrorInfo(_Model):
    """``error`` of an answer. ``retry_after`` is in milliseconds, as on the wire.

    What an app got wrong here is left out rather than refused: that would hide its own error.
    """

    _alone = "message"
    code: str = ""
    message: str = ""
    details: object = None
    retryable: bool = False
    retry_after: Annotated[float, Field(ge=0)] | None = None
    alternatives: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _from_anything(cls, value: object) -> object:
        return value if isinstance(value, str | Mapping) else {"details": value}

    @field_validator("code", "message", "retryable", "retry_after", "alternatives", mode="wrap")
    @classmethod
    def _or_default(cls, value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        try:
            return check(value)
        except ValidationError:
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


class Answer(_Model):
    """An app's answer to a call. ``data`` is not validated here: it may hold content of any kind."""

    success: bool
    data: object = None
    error: ErrorInfo | None = None
    metadata: _Mapping = Field(default_factory=dict)
    cancelled: bool = False

    @model_validator(mode="before")
    @classmethod
    def _implied_success(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        failed = bool(value.get("error")) or value.get("cancelled") is True
        implied = {} if value.get("success") is not None or not (failed or "data" in value) else {"success": not failed}
        return {**value, **implied, "error": value.get("error") or None}

    def raise_for_error(self, capability: str) -> None:
        """Raises :class:`~transports.errors.CapabilityError` unless ``success``."""
        if self.success:
            return
        info = self.error or ErrorInfo()
        reason = info.message or info.code or ("the call was cancelled" if self.cancelled else "the app gave no reason")
        error = CapabilityError(
            f"{capability}: {reason}",
            code=info.code or ("CANCELLED" if self.cancelled else None),
            retryable=info.retryable,
            retry_after=None if info.retry_after is None else info.retry_after / 1000,
            alternatives=info.alternatives,
            details=_inline(info.details),
        )
        error.cancelled = error.code == "CANCELLED" or self.cancelled
        raise error


def _inline(details: object) -> dict[str, object]:
    """An error's details as JSON values. Errors are shown, not stored (seed 000), so content in them is only named."""
    if details is None:
        return {}
    try:
        plain = replace(details, {found.path: _named(found.binary) for found in find(details)})
    except ProtocolError as error:  # nested too deeply: no reason to hide the error itself
        plain = error.message
    return plain if isinstance(plain, dict) else {"app": plain}


def _named(binary: BinaryData | ABPError) -> dict[str, object]:
    if isinstance(binary, ABPError):
        return {"error": binary.message}
    return {"mimeType": binary.mime_type, "size": binary.size}


class Progress(_Model):
    """A progress event. Any field may be missing; ``fraction`` is 0–1 where it can be told. ``call`` is ours: the call
    that it belongs to, or "" if that is not known."""

    call: str = ""
    operation_id: str = ""
    progress: float | None = None
    total: float | None = None
    percentage: float | None = None
    status: str | None = None
    stage: str | None = None
    estimated_remaining: float | None = None

    @property
    def fraction(self) -> float | None:
        if self.percentage is not None:
            return min(max(self.percentage / 100, 0.0), 1.0)
        if self.progress is not None and self.total is not None and self.total > 0:
            return min(max(self.progress / self.total, 0.0), 1.0)
        return None

    @property
    def steps(self) -> tuple[float | None, float | None]:
        """How far, and of how much; in percent where only that is told."""
        if self.progress is None and self.fraction is not None:
            return self.fraction * 100, 100.0
        return self.progress, self.total

    @property
    def words(self) -> str:
        """Stage and status, as people read them."""
        return " · ".join(dict.fromkeys(part for part in (self.stage, self.status) if part))


class Notification(_Model):
    """A notification; ``event`` is one of PROTOCOL's names or the app's own."""

    event: str = ""
    data: object = None


class ElicitationRequest(_Model):
    """The app asks for something: ``method`` as in PROTOCOL, ``timeout`` in milliseconds."""

    method: str = ""
    params: _Mapping = Field(default_factory=dict)
    timeout: float | None = None


_M = TypeVar("_M", bound=BaseModel)


def parse(model: type[_M], payload: object, what: str) -> _M:
    """``payload`` as ``model``. Raises :class:`~transports.errors.ProtocolError` that names the field at fault."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ProtocolError(f"{what} is not what ABP {PROTOCOL_VERSION} says: {where}: {first['msg']}") from error


def decode_json(text: str | bytes) -> object:
    """Strict JSON: no NaN, no overflowing numbers, no lone surrogates, bounded nesting. Raises
    :class:`~transports.errors.ProtocolError`."""
    # Nothing that is read here refers to itself; looking for that again and again takes three quarters of the time.
    pausing = len(text) > _MUCH and gc.isenabled()
    if pausing:
        gc.disable()
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"the app sent JSON that cannot be read: {error}") from error
    finally:
        if pausing:
            gc.enable()


def encode_json(value: object) -> bytes:
    """JSON as UTF-8 bytes, compact. NaN and infinity become null, as in JavaScript."""
    return msgspec.json.encode(value)
