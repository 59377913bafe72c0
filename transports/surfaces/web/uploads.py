"""``POST /artifacts``: uploads, streamed into the store, which checks them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from fnmatch import fnmatchcase

from aiohttp import (
    BadContentDispositionHeader,
    BadContentDispositionParam,
    BodyPartReader,
    MultipartReader,
    web,
)

from ...artifacts import ArtifactRef, ArtifactStore
from ...binary.media import normalise_mime
from ...errors import UsageError
from ...http.headers import disposition_parameter, filename_of
from ..shared.body_deadline import SLOW_BODY, BodyDeadline
from ..shared.store_watcher import StoreWatcher
from .access import Visitor
from .artifact_meta import artifact_meta
from .artifacts import ArtifactRoutes
from .metrics import Metrics
from .options import Options
from .responses import RequestRefused, json_response

__all__ = ["UploadRoutes"]

_PIECE = 256 << 10
#: Files in one form.
_MAX_FILES = 100
_FIELD = "file"


class UploadRoutes:
    """Handler for uploads."""

    def __init__(self, artifacts: ArtifactRoutes, watcher: StoreWatcher, options: Options, metrics: Metrics) -> None:
        self._artifacts = artifacts
        self._watcher = watcher
        self._max_bytes = options.max_upload_bytes
        self._allowed_types = [pattern.strip().lower() for pattern in options.upload_types.split(",")]
        self._metrics = metrics

    async def accept(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Store one file that is the body, or those of a form; answers 201 with the metadata of each.

        The whole form is refused at its first bad file, but the files before it are stored."""
        store = self._artifacts.view(visitor)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RequestRefused(415, "NOT_SUPPORTED", "send the file as it is, without Content-Encoding")
        form = normalise_mime(request.headers.get("Content-Type")) == "multipart/form-data"
        refs = await self._read_form(request, store) if form else [await self._read_body(request, store)]
        self._metrics.uploads.inc(len(refs))
        self._watcher.check_now()
        return json_response({"artifacts": [artifact_meta(ref) for ref in refs]}, status=201)

    async def _read_body(self, request: web.Request, store: ArtifactStore) -> ArtifactRef:
        name = request.query.get("filename") or filename_of(request.headers.get("Content-Disposition"))
        content_type = request.headers.get("Content-Type")
        if request.content_length is not None and request.content_length > self._limit(store):
            raise self._too_large(store)
        return await self._store(
            request.content.iter_chunked(_PIECE), store, content_type, name, request.content_length
        )

    async def _read_form(self, request: web.Request, store: ArtifactStore) -> list[ArtifactRef]:
        refs: list[ArtifactRef] = []
        try:
            reader = await request.multipart()
            while (part := await BodyDeadline().wait(reader.next())) is not None:
                # not aiohttp's reading of names, which takes a name in pieces (RFC 2231) and raises for some
                disposition = part.headers.get("Content-Disposition")
                if isinstance(part, MultipartReader) or disposition_parameter(disposition, "name") != _FIELD:
                    raise RequestRefused(
                        422, "INVALID_PARAMS", f"a form has files only, each as a field called {_FIELD!r}"
                    )
                if len(refs) == _MAX_FILES:
                    raise RequestRefused(413, "TOO_LARGE", f"at most {_MAX_FILES} files are taken at once")
                refs.append(
                    await self._store(
                        _pieces(part), store, part.headers.get("Content-Type"), filename_of(disposition), None
                    )
                )
        except (BadContentDispositionHeader, BadContentDispositionParam):  # warnings, where they are made errors
            raise RequestRefused(400, "INVALID_PARAMS", "the form has a header that cannot be read") from None
        except (ValueError, AssertionError) as error:
            raise RequestRefused(400, "INVALID_PARAMS", f"the form cannot be read: {error}") from None
        if not refs:
            raise RequestRefused(422, "INVALID_PARAMS", f"the form has no file; send it as a field called {_FIELD!r}")
        return refs

    async def _store(
        self,
        pieces: AsyncIterator[bytes],
        store: ArtifactStore,
        content_type: str | None,
        name: str | None,
        size: int | None,
    ) -> ArtifactRef:
        mime_type = normalise_mime(content_type)
        if content_type and mime_type is None:
            raise RequestRefused(415, "INVALID_PARAMS", "the Content-Type is not a MIME type")
        stored_as = mime_type or "application/octet-stream"
        if not any(fnmatchcase(stored_as, pattern) for pattern in self._allowed_types):
            raise RequestRefused(415, "INVALID_PARAMS", f"files of type {stored_as} are not accepted here")
        try:
            return await store.put_stream(
                self._limited(pieces, store),
                size=size,
                mime_type=mime_type,
                filename=name,
                namespace="upload",
                meta={"capability": "upload"},
            )
        except TimeoutError:
            raise RequestRefused(408, "TIMEOUT", SLOW_BODY) from None
        except UsageError as error:
            raise RequestRefused(422, error.code, error.message) from error

    async def _limited(self, pieces: AsyncIterator[bytes], store: ArtifactStore) -> AsyncIterator[bytes]:
        size, deadline = 0, BodyDeadline()
        while True:
            try:
                piece = await deadline.wait(anext(pieces))
            except StopAsyncIteration:
                return
            deadline.count(len(piece))
            size += len(piece)
            if size > self._limit(store):
                raise self._too_large(store)
            yield piece

    def _limit(self, store: ArtifactStore) -> int:
        return min(self._max_bytes, store.max_bytes)

    def _too_large(self, store: ArtifactStore) -> RequestRefused:
        return RequestRefused(413, "TOO_LARGE", f"a file may have {self._limit(store):,} bytes here")


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    while piece := await part.read_chunk(_PIECE):
        yield bytes(piece)
