"""Files that a model sends: base64, an artifact, or a file below a folder that the operator allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...artifacts import ArtifactStore
from ...binary import BinaryData, Encoded
from ...errors import BadEncoding, UsageError
from ...params import place

__all__ = ["with_files"]


async def with_files(
    params: Mapping[str, object], files: Sequence[Mapping[str, Any]], store: ArtifactStore, roots: Sequence[Path]
) -> dict[str, object]:
    """``params`` with each file in its place. Raises :class:`~transports.errors.UsageError`,
    :class:`~transports.errors.ArtifactNotFound`."""
    filled: dict[str, Any] = dict(params)
    for file in files:
        place(filled, file["param"].split("."), await _binary(file, store, roots))
    return filled


async def _binary(file: Mapping[str, Any], store: ArtifactStore, roots: Sequence[Path]) -> BinaryData:
    where, name, mime_type = f"files: {file['param']}", file.get("name"), file.get("mime_type")
    if "content" in file:
        try:
            data = b"".join(Encoded(file["content"], "base64").chunks())
        except BadEncoding as error:
            raise UsageError(f"{where}: the content is not base64; send standard, padded base64") from error
        return BinaryData.from_bytes(data, mime_type=mime_type, filename=name)
    if "artifact" not in file:
        path = _allowed(file["path"], where, roots)
        return _named(BinaryData.from_path(path, mime_type=mime_type), name or path.name)
    ref = await store.stat(file["artifact"].removeprefix("artifact://"))
    mime_type = mime_type or ref.mime_type
    if ref.path is None:
        return BinaryData.from_bytes(await store.get(ref.id), mime_type=mime_type, filename=name or ref.filename)
    return _named(BinaryData.from_path(ref.path, mime_type=mime_type), name or ref.filename)


def _named(binary: BinaryData, name: str) -> BinaryData:
    return BinaryData(binary.content, binary.mime_type, binary.size, name)


def _allowed(path: str, where: str, roots: Sequence[Path]) -> Path:
    """The real path, if it is below a root. The error is the same whether or not there is such a file."""
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
