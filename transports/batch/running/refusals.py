"""What is wrong with an input, told at once: the lines that are no jobs, and a table whose columns have other names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ..job_format import require_few_fields

__all__ = ["EXAMPLE", "Refused", "require_columns"]

#: A line of JSON Lines.
EXAMPLE = '{"capability": "export.pdf", "params": {}}'
#: Refused lines that are named, and the characters of each.
_MOST, _MAX_CHARS = 20, 300
#: Columns that a message names, and the characters of each.
_COLUMNS, _COLUMN_CHARS = 20, 60
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


class Refused:
    """The lines of the input at ``path`` that are no jobs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._reasons: list[str] = []

    def add(self, reason: str) -> None:
        """Note what is wrong, and where: ``line 3: capability is missing``."""
        self._count += 1
        reason = " ".join(reason.split())
        if len(self._reasons) < _MOST:
            self._reasons.append(reason if len(reason) <= _MAX_CHARS else reason[:_MAX_CHARS] + "…")

    def check(self) -> None:
        """Raise :class:`~transports.errors.UsageError` if a line was refused."""
        if self._count == 1:
            raise UsageError(f"{self._path}, {self._reasons[0]}; nothing was run: {_AGAIN}")
        if self._count:
            more = [f"and {self._count - _MOST} more"] if self._count > _MOST else []
            lines = "\n".join([*self._reasons, *more])
            again = _AGAIN.replace("it", "them", 1)
            raise UsageError(
                f"{self._path} has {self._count} lines that are no jobs; nothing was run: {again}\n{lines}",
                details={"refused": lines},
            )


_AGAIN = "correct it, and give the same command again"


def require_columns(path: Path, names: Sequence[str], delimiter: str | None = None) -> None:
    """Raise :class:`~transports.errors.UsageError`, which says what there is instead, for a table without a column
    ``capability``, or with more columns than a job may have fields. ``delimiter`` is what its columns are separated
    by."""
    try:
        require_few_fields(names)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from None
    if "capability" in names or not names:
        return
    shown = ", ".join(f'"{name[:_COLUMN_CHARS]}"' for name in names[:_COLUMNS])
    if len(names) > _COLUMNS:
        shown += f" and {len(names) - _COLUMNS} more"
    found = f"the columns are {shown}" if len(names) > 1 else f"the only column is {shown}"
    alike = [name for name in names if name.strip().lower() == "capability"]
    if alike:
        advice = "names are in small letters without spaces: capability, id, target, params.NAME"
    elif delimiter and any(one != delimiter and one in names[0] for one in _SEPARATORS):
        advice = f"separate columns with {_SEPARATORS[delimiter]}"
    else:
        advice = "one must be capability, what each row calls, such as export.pdf"
    raise UsageError(f"{path}: {found}; {advice}")
