"""The record of one call in the activity log, and its documents in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...artifacts import Scope
from ...errors import ABPError
from ...protocol.payloads import ElicitationRequest, Progress
from ...protocol.plain_text import plain_line
from ...protocol.strict_json import encode_json
from ...protocol.timestamps import iso_utc
from ...session.events import CallFinished

__all__ = ["MAX_TEXT", "CallRecord", "Status", "question_document", "result_document"]

#: Characters of a text from an app, and bytes of its question, that are kept.
MAX_TEXT, _MAX_QUESTION_BYTES = 500, 16 << 10
#: Largest result in bytes of JSON; the data of a larger one is left out.
_MAX_RESULT_BYTES = 1 << 20

Status: TypeAlias = Literal["running", "asking", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """State of one call. ``started`` is in seconds since 1970; ``duration_ms`` is ``None`` until the call has ended;
    ``error`` is a code and a message; ``artifacts`` are ids; ``evidence`` has the id of what was recorded, by its kind;
    ``question`` is set while the app waits for an answer."""

    id: str
    session: str
    app: str
    capability: str
    transport: str
    scope: Scope
    started: float
    status: Status = "running"
    duration_ms: float | None = None
    progress: Progress | None = None
    artifacts: tuple[str, ...] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    question: Mapping[str, object] | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the record as JSON, without the result of the call."""
        return {
            "id": self.id,
            "session": self.session,
            "app": plain_line(self.app),
            "capability": self.capability,
            "transport": self.transport,
            "started": iso_utc(self.started),
            "duration_ms": None if self.duration_ms is None else round(self.duration_ms, 1),
            "status": self.status,
            "progress": _progress(self.progress) if self.progress else None,
            "artifacts": list(self.artifacts),
            "evidence": dict(self.evidence),
            "error": {"code": self.error[0], "message": self.error[1]} if self.error else None,
            "question": self.question,
        }


def _progress(progress: Progress) -> dict[str, object]:
    value, total = progress.steps
    return {"value": value, "total": total, "text": progress.text[:MAX_TEXT] or None}


def question_document(question: ElicitationRequest) -> dict[str, object]:
    """Return a question as ``{"method": …, "params": …}``, without its params if they are over 16 KiB of JSON."""
    params: Mapping[str, object] = question.params
    if len(encode_json(params)) > _MAX_QUESTION_BYTES:
        params = {"message": "the question is too long to be shown"}
    return {"method": question.method, "params": params}


def result_document(event: CallFinished) -> bytes:
    """Return the outcome of a call as the JSON of ``abp call --json``, with the data left out above 1 MiB."""
    if event.result is None:
        error = event.error or ABPError("the call ended without a result")
        cancelled = error.code == "CANCELLED"
        return encode_json({"success": False, "error": error.as_dict(), "cancelled": cancelled})
    document = event.result.as_dict()
    try:
        encoded = encode_json(document)
    except UnicodeEncodeError:  # a path may hold bytes that are not UTF-8
        encoded = json.dumps(document).encode()
    if len(encoded) > _MAX_RESULT_BYTES:
        encoded = encode_json({**document, "data": {"omitted": f"{len(encoded)} bytes; the artifacts have it"}})
    return encoded
