"""Chrome extensions as targets: ``extension:FOLDER``, or a folder with a ``manifest.json``."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError

__all__ = ["EXTENSION_PAGE", "extension_folder", "extension_page_in"]

#: Path of the page that speaks ABP, unless ``extension_page=`` names another.
EXTENSION_PAGE = "abp-app.html"
_SCHEME = "extension:"


def extension_folder(target: str) -> Path | None:
    """Return the absolute folder of the extension that ``target`` names, or ``None`` if it names none.

    Raises :class:`~transports.errors.UsageError` for ``extension:`` with a folder that holds no ``manifest.json``.
    """
    named = target.startswith(_SCHEME)
    if not named and "://" in target:
        return None
    folder = Path(target.removeprefix(_SCHEME)).expanduser()
    if (folder / "manifest.json").is_file():
        return folder.resolve()
    if named:
        raise UsageError(f"{folder} is no extension: there is no manifest.json in it; give the unpacked, built one")
    return None


def extension_page_in(folder: Path, page: str | None) -> str:
    """Return the path of ``page`` inside the extension, query and fragment included, without a leading slash.

    Raises :class:`~transports.errors.UsageError` if the folder has no such file.
    """
    path = (page or EXTENSION_PAGE).lstrip("/")
    file = path.partition("#")[0].partition("?")[0]
    if not (folder / file).is_file():
        raise UsageError(f"the extension in {folder} has no page {file}; name the one that speaks ABP: extension_page=")
    return path
