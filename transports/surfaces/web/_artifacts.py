"""Routes of ``/artifacts``: list, metadata, content, verification, removal, links, thumbnails and uploads."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from fnmatch import fnmatchcase

from aiohttp import BadContentDispositionHeader, BadContentDispositionParam, BodyPartReader, MultipartReader, web

from ..._internal.readers import MAX_SOURCE, PICTURES, run_reader
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef, Scope, age_key
from ...artifacts._search import is_named, search
from ...artifacts._signing import MAX_SECONDS, Expired, Signer, find_server, signing_key
from ...errors import ArtifactNotFound, Corrupt, UsageError
from ...protocol._media import normalise_mime
from ...protocol._plain_text import is_page, origin_of
from ...protocol._times import iso_utc, parse_duration
from ...routing.http._headers import disposition_parameter, filename_of
from ..shared._listening import SLOW_BODY, pieces_in_time
from ._access import Options, Visitor
from ._parts import Parts
from ._responses import (
    RequestRefused,
    StoredArtifact,
    artifact_meta,
    json_response,
    read_json,
    seconds_in,
    serve_content,
    whole_number,
)

list_ = list  # in the class below, list is a method


class ArtifactRoutes:
    """Handlers for the artifacts of the store. Each visitor sees artifacts of their scope; the operator may also fetch
    the unlisted files of batch runs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        #: Cached listing of the whole store, and the store's change token from before it was made.
        self._listing: list_[ArtifactRef] = []
        self._listing_token: object = None

    async def fetch(self, request: web.Request, visitor: Visitor | None = None) -> web.StreamResponse:
        stored = await self._find_artifact(request, visitor)
        return await serve_content(request, stored, self._parts.metrics, self._parts.limits.piece_timeout)

    async def fetch_by_link(self, request: web.Request) -> web.StreamResponse:
        """Serve an artifact to anyone who has a signed link. Answer 410 for an expired link, and 404 for the link of
        another artifact."""
        artifact_id = request.match_info["id"]
        try:
            opens = self._parts.signer.is_link_to(request.query["link"], artifact_id)
        except Expired as error:
            raise RequestRefused(410, error.code, f"this link is not valid: {error.message}") from None
        if not opens:
            raise RequestRefused(404, "ARTIFACT_NOT_FOUND", "this link does not open this artifact")
        return await self.fetch(request)

    async def meta(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        stored = await self._find_artifact(request, visitor)
        document = artifact_meta(stored.ref)
        document["run"] = stored.run_id
        document["source"] = dict(stored.ref.source)
        document["scope"] = dict(stored.ref.scope.items())
        return json_response(document)

    async def _find_artifact(self, request: web.Request, visitor: Visitor | None = None) -> StoredArtifact:
        """Find an artifact for a visitor, or for a valid link."""
        artifact_id = request.match_info["id"]
        store = self._parts.store
        if visitor is not None:
            store = self._parts.store_of(visitor)
        try:
            return StoredArtifact(store, await store.stat(artifact_id))
        except ArtifactNotFound:
            sees_runs = visitor is None or visitor.operator
            if sees_runs:
                file_of_run = await self._parts.runs.artifact(artifact_id)
                if file_of_run is not None:
                    return file_of_run
            raise

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """List a page of artifacts. ``next`` is the time and the id of its last artifact, so that it stays valid even
        if that artifact is removed."""
        query = request.query
        limit = whole_number(query.get("limit", "100"))
        if not limit:
            raise RequestRefused(400, "INVALID_PARAMS", "limit must be a whole number above 0")
        limit = min(limit, 500)

        matching = await self._find_matching(query, visitor)
        rest = matching
        if query.get("after"):
            created, _, artifact_id = query["after"].partition("~")
            rest = [ref for ref in matching if age_key(ref) < (created, artifact_id)]
        page = rest[:limit]
        return json_response(
            {
                "artifacts": [artifact_meta(ref) for ref in page],
                "next": "~".join(age_key(page[-1])) if len(rest) > limit else None,
                "total": len(matching),
                "retention": f"each artifact is {self._parts.store.retention}" if self._parts.store.retention else None,
            }
        )

    async def _find_matching(self, query: Mapping[str, str], visitor: Visitor) -> list_[ArtifactRef]:
        store = self._parts.store_of(visitor)
        session = query.get("session")
        if session:
            is_other_session = visitor.scope.session not in (None, session)
            if is_other_session:
                return []
            store = store.scoped(Scope(session=session[:200]))

        if query.get("text"):
            oldest_first = await search(store, query["text"])
        else:
            oldest_first = await self._list_cached(store)
        return [ref for ref in reversed(oldest_first) if _matches_query(ref, query)]

    async def _list_cached(self, store: ArtifactStore) -> list_[ArtifactRef]:
        """List ``store``, which is a part of the whole store. The listing of the whole store is cached until its change
        token differs: listing 2,000 artifacts takes 30 times as long as reading the token."""
        if self._parts.store.retention:
            # Artifacts expire without a change of the token.
            return await store.list()
        token = await self._parts.store.change_token()
        if token is None:
            return await store.list()

        artifacts = self._listing
        if token != self._listing_token:
            artifacts = await self._parts.store.list()
            max_cached = 20_000  # of about a KB each
            if len(artifacts) <= max_cached:
                self._listing = artifacts
                self._listing_token = token
        return [ref for ref in artifacts if store.scope.covers(ref.scope)]

    async def delete(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        stored = await self._find_artifact(request, visitor)
        if stored.run_id is not None:
            raise RequestRefused(
                403,
                "NOT_SUPPORTED",
                f"{stored.ref.filename} belongs to a batch run, which is read-only; delete its folder",
            )
        await stored.store.delete(stored.ref.id)
        self._parts.watcher.check_now()
        return web.Response(status=204)

    async def verify(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Read the whole content, whose hash the store compares at the end."""
        stored = await self._find_artifact(request, visitor)
        size = 0
        try:
            async with aclosing(stored.store.open(stored.ref.id)) as pieces:
                async for piece in pieces:
                    size += len(piece)
        except Corrupt as error:
            return json_response({"ok": False, "sha256": None, "size_bytes": size, "message": error.message})
        return json_response({"ok": True, "sha256": stored.ref.sha256, "size_bytes": size})

    async def link(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Make a link that expires no later than the visitor's token."""
        stored = await self._find_artifact(request, visitor)
        seconds = seconds_in(await read_json(request), "expires", 3600.0)
        expires_at = self._parts.signer.clock() + seconds
        if visitor.expires_at is not None:
            expires_at = min(expires_at, visitor.expires_at)

        base = self._parts.options.public_url or f"{request.scheme}://{request.host}"
        url = f"{base}{self._parts.signer.link_path(stored.ref.id, expires_at)}"
        return json_response({"url": url, "expires_at": iso_utc(expires_at, timespec="seconds")}, status=201)


def _matches_query(ref: ArtifactRef, query: Mapping[str, str]) -> bool:
    capability = ref.source.get("capability", "")
    if query.get("capability") and capability != query["capability"]:
        return False
    if not ref.mime_type.startswith(query.get("type", "")):
        return False
    if query.get("name") and not is_named(ref, query["name"]):
        return False
    searched_text = query.get("q", "").casefold()
    return any(searched_text in str(value).casefold() for value in (ref.filename, ref.id, capability))


class ThumbnailRoutes:
    """Handlers for thumbnails. Each thumbnail is made in a separate process, and cached. It is also remembered which
    artifacts have no thumbnail."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        #: Pictures by type and hash of the artifact, least recently used first; empty if there is none.
        self._pictures: OrderedDict[str, bytes] = OrderedDict()
        self._two_at_a_time = asyncio.Semaphore(2)

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        store = self._parts.store_of(visitor)
        ref = await store.stat(request.match_info["id"])
        key = f"{ref.mime_type} {ref.sha256}"
        if key not in self._pictures:
            self._cache_picture(key, await self._read_picture(ref, store))
        picture = self._pictures.get(key)
        if not picture:
            raise RequestRefused(404, "NOT_FOUND", "this artifact has no picture")
        self._pictures.move_to_end(key)
        mime_type = "image/png" if picture.startswith(b"\x89PNG") else "image/jpeg"
        headers = {"Cache-Control": "private, max-age=86400", "ETag": f'"{ref.sha256}-thumbnail"'}
        return web.Response(body=picture, content_type=mime_type, headers=headers)

    def _cache_picture(self, key: str, picture: bytes) -> None:
        self._pictures[key] = picture
        max_bytes = 16 << 20
        max_pictures = 2000  # most of which may have no bytes
        cached_bytes = sum(map(len, self._pictures.values()))
        while cached_bytes > max_bytes or len(self._pictures) > max_pictures:
            _, oldest = self._pictures.popitem(last=False)
            cached_bytes -= len(oldest)

    async def _read_picture(self, ref: ArtifactRef, store: ArtifactStore) -> bytes:
        if ref.mime_type not in PICTURES or ref.size_bytes > MAX_SOURCE:
            return b""
        reader, size = PICTURES[ref.mime_type]
        async with self._two_at_a_time:
            data = await store.get(ref)
            reading = await run_reader(reader, data, size)
        if reading is None:
            return b""
        _, picture = reading
        return picture


#: Bytes that are read of an upload at once.
_PIECE = 256 << 10


class UploadRoutes:
    """Handlers for uploads, which are a single file as the body, or a form with files."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._allowed_types = [pattern.strip().lower() for pattern in parts.options.upload_types.split(",")]

    async def accept(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Store uploads. A form is refused at its first invalid file, but the files before that stay stored."""
        store = self._parts.store_of(visitor)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RequestRefused(415, "NOT_SUPPORTED", "send the file as it is, without Content-Encoding")

        try:
            if normalise_mime(request.headers.get("Content-Type")) == "multipart/form-data":
                refs = await self._read_form(request, store)
            else:
                refs = [await self._read_body(request, store)]
        except TimeoutError:
            raise RequestRefused(408, "TIMEOUT", SLOW_BODY) from None

        self._parts.metrics.uploads.inc(len(refs))
        self._parts.watcher.check_now()
        return json_response({"artifacts": [artifact_meta(ref) for ref in refs]}, status=201)

    async def _read_body(self, request: web.Request, store: ArtifactStore) -> ArtifactRef:
        name = request.query.get("filename") or filename_of(request.headers.get("Content-Disposition"))
        content_type = request.headers.get("Content-Type")
        size = request.content_length
        if size is not None and size > self._max_file_bytes(store):
            raise self._too_large(store)
        return await self._store_upload(request.content.iter_chunked(_PIECE), store, content_type, name, size)

    async def _read_form(self, request: web.Request, store: ArtifactStore) -> list[ArtifactRef]:
        refs: list[ArtifactRef] = []
        try:
            reader = await request.multipart()
            while True:
                async with asyncio.timeout(self._parts.limits.part_timeout):
                    part = await reader.next()
                if part is None:
                    break
                max_files = 100
                refs.append(await self._store_part(part, store, has_room=len(refs) < max_files))
        except (BadContentDispositionHeader, BadContentDispositionParam):
            # These are warnings of aiohttp, which are raised under -W error.
            raise RequestRefused(400, "INVALID_PARAMS", "the form has a header that cannot be read") from None
        except (ValueError, AssertionError) as error:
            raise RequestRefused(400, "INVALID_PARAMS", f"the form cannot be read: {error}") from None
        if not refs:
            raise RequestRefused(422, "INVALID_PARAMS", "the form has no file; send it as a field called 'file'")
        return refs

    async def _store_part(
        self, part: MultipartReader | BodyPartReader, store: ArtifactStore, *, has_room: bool
    ) -> ArtifactRef:
        # The header is not read by aiohttp's parser, which raises for some names in pieces (RFC 2231).
        disposition = part.headers.get("Content-Disposition")
        if isinstance(part, MultipartReader) or disposition_parameter(disposition, "name") != "file":
            raise RequestRefused(422, "INVALID_PARAMS", "a form has files only, each as a field called 'file'")
        if not has_room:
            raise RequestRefused(413, "TOO_LARGE", "a form may have at most 100 files")

        content_type = part.headers.get("Content-Type")
        name = disposition_parameter(disposition, "filename")
        return await self._store_upload(_read_pieces(part), store, content_type, name, None)

    async def _store_upload(
        self,
        pieces: AsyncIterator[bytes],
        store: ArtifactStore,
        content_type: str | None,
        name: str | None,
        size: int | None,
    ) -> ArtifactRef:
        """Store a file. ``size`` is in bytes, and ``None`` if the client did not declare it."""
        mime_type = normalise_mime(content_type)
        if content_type and mime_type is None:
            raise RequestRefused(415, "INVALID_PARAMS", "the Content-Type is not a MIME type")
        checked_type = mime_type or "application/octet-stream"
        if not any(fnmatchcase(checked_type, pattern) for pattern in self._allowed_types):
            raise RequestRefused(415, "INVALID_PARAMS", f"files of type {checked_type} are not accepted here")

        try:
            return await store.put_stream(
                self._limit_size(pieces, store),
                size=size,
                mime_type=mime_type,
                filename=name,
                namespace="upload",
                meta={"capability": "upload"},
            )
        except UsageError as error:
            raise RequestRefused(422, error.code, error.message) from error

    async def _limit_size(self, pieces: AsyncIterator[bytes], store: ArtifactStore) -> AsyncIterator[bytes]:
        size = 0
        async for piece in pieces_in_time(pieces):
            size += len(piece)
            if size > self._max_file_bytes(store):
                raise self._too_large(store)
            yield piece

    def _max_file_bytes(self, store: ArtifactStore) -> int:
        return min(self._parts.options.max_upload_bytes, store.max_bytes)

    def _too_large(self, store: ArtifactStore) -> RequestRefused:
        return RequestRefused(413, "TOO_LARGE", f"a file may have at most {self._max_file_bytes(store):,} bytes")


async def _read_pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    piece = await part.read_chunk(_PIECE)
    while piece:
        yield bytes(piece)
        piece = await part.read_chunk(_PIECE)


async def make_link(store: ArtifactStore, artifact_id: str, expires: str, base: str | None) -> tuple[str, str]:
    """Return a URL that opens the artifact without a token, and the time until which it does (ISO 8601). The URL leads
    to the server at ``base``. Without ``base`` it is a presigned URL of the store, if it has these (such as S3), or
    leads to the server of the store on this machine. ``expires`` is a duration such as ``90s``, ``30m``, ``1h`` or
    ``7d``."""
    seconds = parse_duration(expires)
    if seconds is None or not 0 < seconds <= MAX_SECONDS:
        raise UsageError(f"--expires {expires}: give a time such as 90s, 30m, 1h or 7d; at most 30d")

    signer = Signer(Options.load().key or signing_key())
    expires_at = signer.clock() + seconds
    shown_expiry = iso_utc(expires_at, timespec="seconds")
    if base is None:
        presigned = await store.presigned(artifact_id, seconds)
        if presigned:
            return presigned, shown_expiry

    ref = await store.stat(artifact_id)
    address = base or find_server(store.url)
    if address is None:
        raise UsageError(
            "no server of this store runs on this machine; start one with `abp serve`, or give its address with --url"
        )
    if not is_page(address) or origin_of(address) is None:
        raise UsageError(f"--url {address}: give the address of a server, such as http://127.0.0.1:8000")
    return address.rstrip("/") + signer.link_path(ref.id, expires_at), shown_expiry
