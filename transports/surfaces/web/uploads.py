"""``POST /artifacts``: files from people and programs, streamed into the store with its checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase

from aiohttp import BodyPartReader, MultipartReader, web

from ...artifacts import ArtifactRef, ArtifactStore
from ...binary.media import normalise_mime
from ...errors import UsageError
from .access import Visitor
from .answers import Refused, json_answer
from .arrivals import Arrivals
from .artifacts import Artifacts
from .documents import meta_of
from .metrics import Metrics
from .names import named
from .options import Options

__all__ = ["Uploads"]

_PIECE = 256 << 10
#: Seconds for a client to send the next piece, and files in one request.
_PATIENCE, _FILES = 60.0, 100
_FIELD = "file"


class Uploads:
    """Uploads of files."""

    def __init__(self, artifacts: Artifacts, arrivals: Arrivals, options: Options, metrics: Metrics) -> None:
        self._artifacts = artifacts
        self._arrivals = arrivals
        self._most = options.max_upload_bytes
        self._types = [pattern.strip().lower() for pattern in options.upload_types.split(",")]
        self._metrics = metrics

    async def accept(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """One file as the body, or several as a form."""
        store = self._artifacts.view(visitor)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Refused(415, "NOT_SUPPORTED", "send the file as it is, without Content-Encoding")
        form = request.content_type == "multipart/form-data"
        refs = await self._form(request, store) if form else [await self._raw(request, store)]
        self._metrics.count("abp_uploads_total", len(refs))
        self._arrivals.look()
        return json_answer({"artifacts": [meta_of(ref) for ref in refs]}, status=201)

    async def _raw(self, request: web.Request, store: ArtifactStore) -> ArtifactRef:
        name = request.query.get("filename") or named(request.headers.get("Content-Disposition"))
        kind = request.headers.get("Content-Type")
        if request.content_length is not None and request.content_length > self._limit(store):
            raise self._too_large(store)
        return await self._store(request.content.iter_chunked(_PIECE), store, kind, name, request.content_length)

    async def _form(self, request: web.Request, store: ArtifactStore) -> list[ArtifactRef]:
        refs: list[ArtifactRef] = []
        try:
            reader = await request.multipart()
            while (part := await asyncio.wait_for(reader.next(), _PATIENCE)) is not None:
                if isinstance(part, MultipartReader) or part.name != _FIELD:
                    raise Refused(422, "INVALID_PARAMS", f"a form has files only, each as a field called {_FIELD!r}")
                if len(refs) == _FILES:
                    raise Refused(413, "TOO_LARGE", f"at most {_FILES} files are taken at once")
                refs.append(
                    await self._store(_pieces(part), store, part.headers.get("Content-Type"), part.filename, None)
                )
        except (ValueError, AssertionError) as error:
            raise Refused(400, "INVALID_PARAMS", f"the form cannot be read: {error}") from None
        if not refs:
            raise Refused(422, "INVALID_PARAMS", f"the form has no file; send it as a field called {_FIELD!r}")
        return refs

    async def _store(
        self, pieces: AsyncIterator[bytes], store: ArtifactStore, kind: str | None, name: str | None, size: int | None
    ) -> ArtifactRef:
        mime_type = normalise_mime(kind)
        if kind and mime_type is None:
            raise Refused(415, "INVALID_PARAMS", "the Content-Type is no MIME type")
        wanted = mime_type or "application/octet-stream"
        if not any(fnmatchcase(wanted, pattern) for pattern in self._types):
            raise Refused(415, "INVALID_PARAMS", f"files of type {wanted} are not accepted here")
        try:
            return await store.put_stream(
                self._counted(pieces, store),
                size=size,
                mime_type=mime_type,
                filename=name,
                namespace="upload",
                meta={"capability": "upload"},
            )
        except TimeoutError:
            raise Refused(408, "TIMEOUT", f"nothing came for {_PATIENCE:g} seconds") from None
        except UsageError as error:
            raise Refused(422, error.code, error.message) from error

    async def _counted(self, pieces: AsyncIterator[bytes], store: ArtifactStore) -> AsyncIterator[bytes]:
        size = 0
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            size += len(piece)
            if size > self._limit(store):
                raise self._too_large(store)
            yield piece

    def _limit(self, store: ArtifactStore) -> int:
        return min(self._most, store.max_bytes)

    def _too_large(self, store: ArtifactStore) -> Refused:
        return Refused(413, "TOO_LARGE", f"a file may have {self._limit(store):,} bytes here")


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    while piece := await part.read_chunk(_PIECE):
        yield bytes(piece)
