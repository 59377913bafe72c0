"""A detached call as the ledger has it: a row, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

from ...artifacts import Scope
from ...batch.ledger.texts import decoded_object
from ...database import Value
from ...session.handles import CallStatus
from .call_record import CallRecord

__all__ = ["COLUMNS", "KeptCall"]

#: Columns of the ledger that make a call.
COLUMNS = (
    "id, tenant, user, session, app, capability, transport, started, status, duration, code, error, files, answer, "
    "content"
)


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call as the ledger has it. ``answer`` is the document of ``abp call --json``, ``content`` what its surface
    made of it, both as JSON; ``None`` while the call is under way, where there is none, and once it has expired."""

    record: CallRecord
    answer: bytes | None = None
    content: bytes | None = None

    @property
    def expired(self) -> bool:
        """Whether the answer was kept and is gone."""
        status = self.record.status
        return status.final and status is not CallStatus.UNKNOWN and self.answer is None

    @classmethod
    def of_row(cls, *cells: Value) -> Self:
        """Return the call that the cells of :data:`COLUMNS` make."""
        call, tenant, user, session, app, capability, transport, started, status, duration, code, error, *rest = cells
        files, answer, content = rest
        made = cast("dict[str, Any]", decoded_object(files))
        record = CallRecord(
            id=str(call),
            session=str(session),
            app=str(app),
            capability=str(capability),
            transport=str(transport),
            scope=Scope(tenant=cast("str | None", tenant), user=cast("str | None", user), session=str(session)),
            started=cast(float, started),
            status=CallStatus(str(status)),
            duration_ms=cast("float | None", duration),
            artifacts=tuple(made.get("artifacts", ())),
            evidence=made.get("evidence", {}),
            error=(str(code), str(error)) if code is not None else None,
            detached=True,
        )
        return cls(record, *(None if text is None else str(text).encode() for text in (answer, content)))
