"""Chrome extensions as targets."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError

__all__ = ["EXTENSION_PAGE", "extension_folder", "extension_page_in"]

#: The page of an extension that speaks ABP, unless another is named.
EXTENSION_PAGE = "abp-app.html"
_SCHEME = "extension:"


def extension_folder(target: str) -> Path | None:
    """The folder that ``target`` means, if it means an extension: ``extension:FOLDER``, or a folder that holds a
    ``manifest.json``. Raises :class:`~transports.errors.UsageError` for ``extension:`` without such a folder."""
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
    """The page's path in the extension, with its query. Raises :class:`~transports.errors.UsageError` if there is no
    such file."""
    path = (page or EXTENSION_PAGE).lstrip("/")
    file = path.partition("#")[0].partition("?")[0]
    if not (folder / file).is_file():
        raise UsageError(f"the extension in {folder} has no page {file}; name the one that speaks ABP: extension_page=")
    return path
