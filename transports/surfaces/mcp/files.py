"""Files that a model sends with a call: base64, an artifact, or a file below a folder that the operator allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from ...artifacts import ArtifactStore
from ...artifacts.beneath import open_beneath
from ...binary.params import set_path
from ...errors import ABPError, TooLarge, UsageError
from ...routing import GivenFile, OpenFile, accept_files
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
    filled: dict[str, Any] = dict(params)
    with ExitStack() as opened:
        try:
            given = {file["param"]: _given(file, options.roots, opened) for file in files}
            accepted = await accept_files(given, store=store, limits=options.files, capability=capability)
        except ABPError as error:
            error.details["argument"] = "files"
            raise
    for param, one in accepted.items():
        set_path(filled, param.split("."), one.binary)
    return filled


def _given(file: Mapping[str, Any], roots: Sequence[Path], opened: ExitStack) -> GivenFile | OpenFile:
    name, mime_type = file.get("name"), file.get("mime_type")
    if "content" in file or "artifact" in file:
        given: dict[str, Any] = {"content": file.get("content"), "id": file.get("artifact")}
        given |= {"filename": name, "mimeType": mime_type}
        return cast(GivenFile, {key: value for key, value in given.items() if value is not None})
    refused = UsageError(f"files: {file['param']}: this path may not be read; send `content` or `artifact` instead, or "
                         "have the user allow its folder with ABP_MCP_ROOTS")  # fmt: skip
    one = opened.enter_context(open_beneath(file["path"], roots, refused))
    return OpenFile(one, mime_type, name or Path(str(one.name)).name)
