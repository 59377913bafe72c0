"""The folder of ``--state``."""

from __future__ import annotations

import stat
from pathlib import Path

from ...artifacts import belongs_to_us, others_may_read
from ...errors import LedgerError


def make_private(folder: Path) -> None:
    """Create the folder of ``--state`` with mode 0700, or set the mode of an existing one. Raises
    :class:`~transports.errors.LedgerError` for a symlink, a folder of another user, and if it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or not belongs_to_us(status):
            raise LedgerError(f"{folder} is a symlink or belongs to another user; name another folder with --state")
        if others_may_read(status):
            folder.chmod(0o700)
    except OSError as error:
        raise LedgerError(f"{folder}: {error.strerror}; name another folder with --state") from error
