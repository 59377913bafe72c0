"""The tools for artifacts: a list, and slices of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult

from ...artifacts import ArtifactRef, ArtifactStore, Scope
from ...routing.guard import json_size
from .artifact_view import ArtifactView
from .export import export_artifact
from .options import Options
from .resources import read_slice
from .texts import document_text
from .tool_results import text_result

__all__ = ["ArtifactTools"]

#: Artifacts in one page of `abp_artifacts`, and the bytes of a page besides them.
_PAGE, _HEADER_BYTES = 20, 1024


class ArtifactTools:
    """The tools for the artifacts of one user. Each raises :class:`~transports.errors.ABPError`."""

    def __init__(self, store: ArtifactStore, options: Options, view: ArtifactView) -> None:
        self._store = store
        self._options = options
        self._view = view

    async def list(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Answer ``abp_artifacts``."""
        store = self._store
        if key := arguments.get("session"):
            store = store.scoped(Scope(session=key))
        refs = (await store.list())[::-1]
        start = arguments.get("offset", 0)
        lines, room = list[str](), self._options.max_answer_bytes - _HEADER_BYTES
        entries: list[dict[str, object]] = []
        for ref in refs[start : start + arguments.get("limit", _PAGE)]:
            line, entry = self._line(ref), self._view.entry(ref)
            room -= len(line.encode()) + json_size(entry) + 3  # a line break in JSON, and a comma
            if room < 0 and entries:
                break  # a page that is cut to the limit later would not say where to go on
            lines.append(line)
            entries.append(entry)
        end = start + len(entries)
        lines.append(f"{len(refs)} in all" + (f"; go on with offset {end}" if end < len(refs) else ""))
        document = {
            "success": True,
            "total": len(refs),
            "next_offset": end if end < len(refs) else None,
            "artifacts": entries,
        }
        return text_result("\n".join(lines), document, self._options.max_answer_bytes)

    def _line(self, ref: ArtifactRef) -> str:
        large = "  large" if self._view.is_large(ref) else ""
        return f"{ref.id}  {ref.size_bytes:,} bytes  {ref.mime_type}  {ref.filename}{large}"

    async def read(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Answer ``abp_read_artifact``."""
        store = self._store
        ref = await store.stat(arguments["id"].removeprefix("artifact://"))
        if (path := arguments.get("path")) is not None:
            written = await export_artifact(store, ref, path, self._options.export_roots)
            document = {"success": True, **self._view.entry(ref), "exported": str(written)}
            return text_result(
                f"Written: {written} ({ref.size_bytes:,} bytes)", document, self._options.max_answer_bytes
            )
        whole = (await document_text(ref, store)).encode() if arguments.get("text") else None
        if whole is not None:
            ref = dataclasses.replace(ref, mime_type="text/plain", size_bytes=len(whole))

        async def read(offset: int, length: int) -> bytes:
            return await store.get(ref.id, offset=offset, length=length) if whole is None else whole[offset:][:length]

        offset, length = arguments.get("offset", 0), arguments.get("length")
        return await read_slice(ref, read, offset, length, self._options.max_answer_bytes, self._view)
