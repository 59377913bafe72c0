"""The user's state folder: what is kept from one run to the next, such as keys and histories."""

from __future__ import annotations

from pathlib import Path

import platformdirs

__all__ = ["state_folder"]


def state_folder(*below: str) -> Path:
    """Return the user's state folder, or a folder below it, made with mode 0700. Raises :class:`OSError` if it cannot
    be made."""
    folder = Path(platformdirs.user_state_dir("abp-transports", appauthor=False), *below)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
