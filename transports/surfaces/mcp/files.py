"""Files that a model sends with a call: base64, an artifact, or a file below a folder that the operator allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...artifacts import ArtifactStore
from ...binary import BinaryData
from ...binary.params import set_path
from ...errors import ABPError, TooLarge, UsageError
from ...routing import GivenFile, accept_files
from .options import Options

__all__ = ["with_files"]


async def with_files(
    params: Mapping[str, object],
    files: Sequence[Mapping[str, Any]],
    store: ArtifactStore,
    options: Options,
    capability: str,
) -> dict[str, object]:
    """Return ``params`` with each file at the place that its ``param`` names; files are checked and stored first.

    Raises :class:`~transports.errors.TooLarge` for too many files, :class:`~transports.errors.UsageError` for a path
    that is not allowed, and what :func:`~transports.routing.accept_files` raises, with ``details["argument"]``."""
    if len(files) > options.max_files:
        raise TooLarge(f"there are {len(files)} files; at most {options.max_files} are accepted with a call")
    given = {file["param"]: _given(file, options.roots) for file in files}
    filled: dict[str, Any] = dict(params)
    try:
        accepted = await accept_files(given, store=store, limits=options.files, capability=capability)
    except ABPError as error:
        error.details["argument"] = "files"
        raise
    for param, one in accepted.items():
        set_path(filled, param.split("."), one.binary)
    return filled


def _given(file: Mapping[str, Any], roots: Sequence[Path]) -> GivenFile | BinaryData:
    name, mime_type = file.get("name"), file.get("mime_type")
    if "content" in file or "artifact" in file:
        given: dict[str, Any] = {"content": file.get("content"), "id": file.get("artifact")}
        given |= {"filename": name, "mimeType": mime_type}
        return cast(GivenFile, {key: value for key, value in given.items() if value is not None})
    path = _allowed(file["path"], f"files: {file['param']}", roots)
    binary = BinaryData.from_path(path, mime_type=mime_type)
    return BinaryData(binary.content, binary.mime_type, binary.size, name or path.name)


def _allowed(path: str, where: str, roots: Sequence[Path]) -> Path:
    """The real path, if it is below a root. The error does not tell whether there is such a file."""
    refused = UsageError(f"{where}: this path may not be read; send `content` or `artifact` instead, or have the user "
                         "allow its folder with ABP_MCP_ROOTS")  # fmt: skip
    if not roots or "\0" in path:
        raise refused
    try:
        real = Path(path).resolve(strict=True)
    except (OSError, RuntimeError):
        raise refused from None
    if not any(real.is_relative_to(root) for root in roots):
        raise refused
    return real
