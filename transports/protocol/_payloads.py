"""Models of payloads: answers to requests, and events of an app (docs/protocol.md 2 to 5).

They are as lenient as the models of :mod:`._declarations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from ..errors import ABPError, CapabilityError, ProtocolError
from ._declarations import AppInfo, JSONObject, Model
from ._find_content import find, replace_values
from .binary import BinaryData


class Initialized(Model):
    """Answer to ``initialize`` (docs/protocol.md 2.2).

    ``capabilities`` stay unparsed, since there may be very many: :class:`~._capabilities.Capabilities` parses each on
    first access.
    """

    session_id: str = ""
    protocol_version: str = ""
    app: AppInfo = Field(default_factory=AppInfo)
    capabilities: list[object] = Field(default_factory=list)
    features: JSONObject = Field(default_factory=dict)


class ErrorInfo(Model):
    """``error`` of an answer. ``retry_after`` is in milliseconds, as on the wire.

    A field of the wrong type gets its default, since refusing the answer would hide the app's own error.
    """

    _text_field = "message"
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


class Answer(Model):
    """Answer to a call (docs/protocol.md 3.3). ``data`` is not validated here, since it may hold any content.

    A missing ``success`` is implied: false with an ``error`` or ``cancelled: true``, true with ``data``.
    """

    success: bool
    data: object = None
    error: ErrorInfo | None = None
    cancelled: bool = False

    @model_validator(mode="before")
    @classmethod
    def _implied_success(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        failed = bool(value.get("error")) or value.get("cancelled") is True
        answer = {**value, "error": value.get("error") or None}
        if value.get("success") is None and (failed or "data" in value):
            answer["success"] = not failed
        return answer

    def raise_for_error(self, capability: str) -> None:
        """Raise :class:`~transports.errors.CapabilityError` unless ``success``. Its ``retry_after`` is in seconds."""
        if self.success:
            return
        info = self.error or ErrorInfo()
        code = info.code or None
        reason = "the app gave no reason"
        if self.cancelled:
            code = code or "CANCELLED"
            reason = "the call was cancelled"
        error = CapabilityError(
            f"{capability}: {info.message or info.code or reason}",
            code=code,
            retryable=info.retryable,
            retry_after=None if info.retry_after is None else info.retry_after / 1000,
            alternatives=info.alternatives,
            details=_shown_details(info.details),
        )
        error.cancelled = error.code == "CANCELLED" or self.cancelled
        error.answered = self.data
        raise error


def _shown_details(details: object) -> dict[str, object]:
    """Content is reduced to its type and size: errors are shown, not stored (docs/protocol.md 12.3)."""
    if details is None:
        return {}
    try:
        plain = replace_values(details, {content.path: _type_and_size(content.binary) for content in find(details)})
    except ProtocolError as error:  # nested too deeply; the error itself must still be reported
        plain = error.message
    return plain if isinstance(plain, dict) else {"app": plain}


def _type_and_size(binary: BinaryData | ABPError) -> dict[str, object]:
    if isinstance(binary, ABPError):
        return {"error": binary.message}
    return {"mimeType": binary.mime_type, "size": binary.size}


class Progress(Model):
    """Progress event (docs/protocol.md 4.4). Any field may be missing.

    ``operation_id`` is the app's id of the call, ``call`` the session's, "" if the call is unknown. ``percentage`` is 0
    to 100. ``estimated_remaining`` is the app's number: ABP does not specify its unit; other durations of ABP are in
    milliseconds.
    """

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
        """Completed fraction, 0 to 1, from ``percentage`` or from ``progress`` and ``total``, or ``None``."""
        if self.percentage is not None:
            return min(max(self.percentage / 100, 0.0), 1.0)
        if self.progress is not None and self.total is not None and self.total > 0:
            return min(max(self.progress / self.total, 0.0), 1.0)
        return None

    @property
    def steps(self) -> tuple[float | None, float | None]:
        """Pair ``progress``, ``total``; a percentage and 100 if the app sends only the percentage."""
        if self.progress is None and self.fraction is not None:
            return self.fraction * 100, 100.0
        return self.progress, self.total

    @property
    def text(self) -> str:
        """Display line of ``stage`` and ``status``, "" if the app sends neither."""
        return " · ".join(dict.fromkeys(part for part in (self.stage, self.status) if part))


class Notification(Model):
    """Notification of the app. ``event`` is one of the names of docs/protocol.md 4.3 or the app's own.

    ``{method, params}`` counts as ``{event, data}``: the samples of the protocol's guides send that."""

    event: str = ""
    data: object = None

    @model_validator(mode="before")
    @classmethod
    def _from_method(cls, value: object) -> object:
        if isinstance(value, Mapping) and "event" not in value and "method" in value:
            return {"event": value["method"], "data": value.get("params")}
        return value


class ElicitationRequest(Model):
    """Question of the app to the user or the client (docs/protocol.md 5). ``timeout`` is in milliseconds."""

    method: str = ""
    params: JSONObject = Field(default_factory=dict)
    timeout: float | None = None
