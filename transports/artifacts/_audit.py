"""The audit log: an append-only file of JSON lines with the scope, action and artifact of each operation."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ..errors import StoreError
from ..protocol._times import iso_utc
from ._files import open_file
from ._ref import Scope


class AuditLog:
    """An append-only file with one JSON object per line. Any number of processes may share it.

    Each line has ``time`` (ISO 8601, UTC), ``action`` (``put``, ``read``, ``delete``, ``evict``, ``refuse``), ``who``
    (the scope of the view that was used; empty for an unscoped store), ``process`` and, as they apply, ``id``,
    ``bytes``, ``code`` and ``reason``. The log never holds content, file names or credentials.

    A line is one ``write`` to a file opened with ``O_APPEND``, so lines of several processes never mix. A symlink in
    the file's place is refused (``O_NOFOLLOW``). If a line cannot be written, the method raises
    :class:`~transports.errors.StoreError` rather than leave a gap.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()

    def check(self) -> None:
        """Raise :class:`~transports.errors.StoreError` if the file cannot be opened to append. Creates it."""
        os.close(self._open_log())

    def write(self, action: str, who: Scope, **facts: object) -> None:
        """Append one line. ``who`` is the scope that acted; ``facts`` are JSON values, and ``None`` is left out."""
        line: dict[str, object] = {
            "time": iso_utc(time.time()),
            "action": action,
            "who": dict(who.items()),
            "process": os.getpid(),
        }
        line |= {name: value for name, value in facts.items() if value is not None}
        data = json.dumps(line, ensure_ascii=True).encode() + b"\n"
        fd = self._open_log()
        try:
            written = os.write(fd, data)
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        finally:
            os.close(fd)
        if written != len(data):
            raise self._error("no space is left")

    def _open_log(self) -> int:
        """Return a descriptor of the log, to append."""
        # It is opened for each line, so that a rotated log does not go on growing unseen.
        try:
            return open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            reason = error.strerror or str(error)
            if self.path.is_symlink():
                reason = "it is a symlink, which is not followed"
            raise self._error(reason) from error

    def _error(self, reason: str) -> StoreError:
        return StoreError(f"cannot write the audit log {self.path}: {reason}; name another file with ABP_AUDIT_LOG")
