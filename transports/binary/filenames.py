"""Safe names for files, from names that apps suggest. No I/O."""

from __future__ import annotations

import re
import unicodedata

from .media import extension_for

__all__ = ["safe_filename"]

#: Unicode categories of characters that are not shown, or that change how others are.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MAX_NAME_BYTES = 120  # as UTF-8
_MAX_CHARS = 500  # of the beginning, and of the end, of what is looked at
#: Most names are as harmless as they look; a reserved name of Windows has at most four of these characters.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,60}\.[A-Za-z][A-Za-z0-9]{1,9}")


def safe_filename(suggestion: str | None, *, fallback: str, mime_type: str | None) -> str:
    """Return a file name that is harmless in any folder of any system, from a name that an untrusted side suggests.

    Folders, control and direction-changing characters, leading dots and dashes, trailing dots and spaces and the
    reserved names of Windows are removed. The result is in NFC, has at most 120 UTF-8 bytes, and keeps a plausible
    extension or gets that of ``mime_type``. ``fallback``, a trusted stem, is used if nothing is left.
    """
    if suggestion and _PLAIN.fullmatch(suggestion):
        return suggestion
    name = suggestion or ""
    name = name[1 + max(name.rfind("/"), name.rfind("\\")) :]
    if len(name) > 2 * _MAX_CHARS:  # before anything else: composing a long run of marks takes quadratic time
        name = name[:_MAX_CHARS] + name[-_MAX_CHARS:]
    name = "".join(c for c in name if unicodedata.category(c) not in _INVISIBLE and c not in '<>:"|?*')
    name = unicodedata.normalize("NFC", ".".join(map(str.rstrip, name.split(".")))).strip().lstrip(".-~ ").rstrip(". ")
    stem, _, extension = name.rpartition(".")
    if not stem or not re.fullmatch(r"(?=[0-9]*[A-Za-z])[A-Za-z0-9]{1,10}", extension):
        stem, extension = name, extension_for(mime_type)[1:]
    from pathvalidate import sanitize_filename  # late: a session loads it while its transport opens

    stem = sanitize_filename(stem, platform="universal", additional_reserved_names=("CONIN$", "CONOUT$"))
    stem = stem.encode()[: _MAX_NAME_BYTES - 1 - len(extension)].decode(errors="ignore").rstrip(". ")
    return f"{stem or fallback}.{extension}"
