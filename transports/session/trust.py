"""Trust in settings files that are found, as direnv has it: a file is trusted at its path as long as its content is
what the user looked at. Kept in the user's configuration folder, one small file for each."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..errors import UsageError

__all__ = ["is_trusted", "trust"]


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user trusts a file with this content."""
    try:
        return _record(file, content).is_file()
    except OSError:
        return False


def trust(file: Path, content: bytes) -> None:
    """Trust a file with this content from now on. Raises :class:`~transports.errors.UsageError` if that cannot be
    kept."""
    record = _record(file, content)
    try:
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        record.write_text(f"{file.resolve()}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--trust: {record} cannot be written: {error.strerror}; use --config FILE instead") from error


def _record(file: Path, content: bytes) -> Path:
    import platformdirs  # late: only a file that was found needs it

    name = hashlib.sha256(bytes(file.resolve()) + b"\0" + content).hexdigest()
    return Path(platformdirs.user_config_dir("abp-transports", appauthor=False), "trusted", name)
