"""Payloads of messages as models: the answers to requests, and the events of an app (docs/protocol.md 2 to 5). No I/O.

They are as lenient as the models of :mod:`.declarations`.
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

from ..binary import BinaryData
from ..binary.detect import find, replace
from ..errors import ABPError, CapabilityError, ProtocolError
from .declarations import AppInfo, JSONObject, Model

__all__ = ["Answer", "ElicitationRequest", "ErrorInfo", "Initialized", "Notification", "Progress"]


class Initialized(Model):
    """Answer to ``initialize``. ``capabilities`` are not read here: there may be very many."""

    session_id: str = ""
    protocol_version: str = ""
    app: AppInfo = Field(default_factory=AppInfo)
    capabilities: list[object] = Field(default_factory=list)
    features: JSONObject = Field(default_factory=dict)


class ErrorInfo(Model):
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


class Answer(Model):
    """An app's answer to a call. ``data`` is not validated here: it may hold content of any kind."""

    success: bool
    data: object = None
    error: ErrorInfo | None = None
    metadata: JSONObject = Field(default_factory=dict)
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


class Progress(Model):
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
    def text(self) -> str:
        """Stage and status, as people read them."""
        return " · ".join(dict.fromkeys(part for part in (self.stage, self.status) if part))


class Notification(Model):
    """A notification; ``event`` is one of PROTOCOL's names or the app's own."""

    event: str = ""
    data: object = None


class ElicitationRequest(Model):
    """The app asks for something: ``method`` as in PROTOCOL, ``timeout`` in milliseconds."""

    method: str = ""
    params: JSONObject = Field(default_factory=dict)
    timeout: float | None = None
