"""``/artifacts``: list, look at, fetch, check, remove, link."""

from __future__ import annotations

import hashlib
from contextlib import aclosing

from aiohttp import web

from ...artifacts import ArtifactRef, ArtifactStore, Scope, is_named, search
from ...artifacts.query import age_key
from ...errors import ArtifactNotFound, Corrupt
from ...protocol.timestamps import iso_utc
from ..shared.store_watcher import StoreWatcher
from .access import Visitor
from .artifact_meta import artifact_meta
from .content import serve_content
from .metrics import Metrics
from .responses import RequestRefused, json_response, read_json
from .served_runs import ServedRuns
from .signing import MAX_SECONDS, Expired, Signer

__all__ = ["ArtifactRoutes", "seconds_in"]

#: Artifacts in one page of a list: by default, and at most.
_PAGE, _MAX_PAGE = 100, 500
#: Artifacts of a listing that is remembered (about a KB each); a longer one is read again for each page.
_MAX_REMEMBERED = 20_000
list_ = list  # there is a method of that name


class ArtifactRoutes:
    """Handlers for the artifacts of one store. Each visitor sees those of their scope. The operator may look at the
    files of ``runs``, too, which no list holds. Links begin with ``public_url``, or with where the request came."""

    def __init__(
        self,
        store: ArtifactStore,
        watcher: StoreWatcher,
        signer: Signer,
        metrics: Metrics,
        runs: ServedRuns,
        public_url: str | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._watcher = watcher
        self._signer = signer
        self._metrics = metrics
        self._public_url = public_url
        #: The last listing of the whole store, and the change token from before it.
        self._listing: tuple[object, list_[ArtifactRef]] = None, []

    def view(self, visitor: Visitor) -> ArtifactStore:
        """Return the store as the visitor sees it."""
        return self._store.scoped(visitor.scope)

    async def fetch(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /artifacts/{id}`` with the content."""
        return await serve_content(request, *(await self._find(request, visitor))[:2], self._metrics)

    async def fetch_by_link(self, request: web.Request) -> web.StreamResponse:
        """Answer ``GET /artifacts/{id}?link=…`` with the content: the link stands for a token. 410 for a link that has
        expired, 404 for one that opens something else or nothing."""
        artifact_id = request.match_info["id"]
        try:
            opens = self._signer.link_opens(request.query["link"], artifact_id)
        except Expired as error:
            raise RequestRefused(410, error.code, f"this link is over: {error.message}") from None
        if not opens:
            raise RequestRefused(404, "ARTIFACT_NOT_FOUND", "this link leads nowhere")
        return await serve_content(request, *(await self._find(request))[:2], self._metrics)

    async def meta(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /artifacts/{id}/meta``: the document of lists and events, with ``source`` and ``scope``; of
        a file of a batch run, ``run`` is its id."""
        _, ref, run = await self._find(request, visitor)
        return json_response(
            {**artifact_meta(ref), "run": run, "source": dict(ref.source), "scope": dict(ref.scope.items())}
        )

    async def _find(
        self, request: web.Request, visitor: Visitor | None = None
    ) -> tuple[ArtifactStore, ArtifactRef, str | None]:
        """The artifact of a request, the store that it is in, and the id of the batch run that it is a file of.
        Without a visitor, a link has opened it."""
        artifact_id = request.match_info["id"]
        view = self.view(visitor) if visitor else self._store
        try:
            return view, await view.stat(artifact_id), None
        except ArtifactNotFound:
            if (visitor is None or visitor.operator) and (found := await self._runs.artifact(artifact_id)):
                return found
            raise

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /artifacts``, newest first. The cursor ``next`` holds the id and the time of the last artifact
        of a page, so it stays good when that artifact is removed."""
        query = request.query
        view = self.view(visitor)
        retention = f"each artifact is {self._store.retention}" if self._store.retention else None
        if session := query.get("session"):
            if visitor.scope.session not in (None, session):
                return json_response({"artifacts": [], "next": None, "total": 0, "retention": retention})
            view = view.scoped(Scope(session=session[:200]))
        capability, mime_type, text = query.get("capability"), query.get("type"), query.get("q", "").casefold()
        listed = await (search(view, query["text"]) if query.get("text") else self._list(view))
        found = [ref for ref in reversed(listed) if _matches(ref, capability, mime_type, text)]
        if name := query.get("name"):
            found = [ref for ref in found if is_named(ref, name)]
        total, after = len(found), query.get("after")
        if after:
            created, _, artifact_id = after.partition("~")
            found = [ref for ref in found if age_key(ref) < (created, artifact_id)]
        limit = _limit(query.get("limit"))
        page = found[:limit]
        cursor = "~".join(age_key(page[-1])) if page and len(found) > limit else None
        document = {"artifacts": [artifact_meta(ref) for ref in page], "next": cursor, "total": total}
        return json_response({**document, "retention": retention})

    async def _list(self, view: ArtifactStore) -> list_[ArtifactRef]:
        """What the view sees, oldest first. The listing is remembered while the store does not change."""
        token = None if self._store.retention else await self._store.change_token()  # artifacts expire without a change
        if token is None:
            return await view.list()
        if token != self._listing[0]:
            listed = await self._store.list()
            if len(listed) > _MAX_REMEMBERED:
                return [ref for ref in listed if view.scope.covers(ref.scope)]
            self._listing = token, listed
        return [ref for ref in self._listing[1] if view.scope.covers(ref.scope)]

    async def delete(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``DELETE /artifacts/{id}`` with 204, 404 for an artifact that the visitor does not see, or 403 for one
        of a batch run."""
        view, ref, run = await self._find(request, visitor)
        if run is not None:
            raise RequestRefused(
                403, "NOT_SUPPORTED", f"{ref.filename} belongs to a batch run, which is only shown; delete its folder"
            )
        await view.delete(ref.id)
        self._watcher.check_now()
        return web.Response(status=204)

    async def verify(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``POST /artifacts/{id}/verify``: read all of the content again and compare its size and SHA-256."""
        view, ref, _ = await self._find(request, visitor)
        digest, size = hashlib.sha256(), 0
        try:
            async with aclosing(view.open(ref.id)) as pieces:
                async for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
        except Corrupt as error:
            return json_response({"ok": False, "sha256": None, "size_bytes": size, "message": error.message})
        intact = (digest.hexdigest(), size) == (ref.sha256, ref.size_bytes)
        return json_response({"ok": intact, "sha256": digest.hexdigest(), "size_bytes": size})

    async def link(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``POST /artifacts/{id}/link`` with a signed link. It expires no later than the visitor's token."""
        _, ref, _ = await self._find(request, visitor)
        seconds = seconds_in(await read_json(request), "expires", 3600.0)
        expires_at = self._signer.clock() + seconds
        if visitor.expires_at is not None:
            expires_at = min(expires_at, visitor.expires_at)
        base = self._public_url or f"{request.scheme}://{request.host}"
        url = f"{base}{self._signer.link_path(ref.id, expires_at)}"
        return json_response({"url": url, "expires_at": iso_utc(expires_at, timespec="seconds")}, status=201)


def seconds_in(body: dict[str, object], key: str, default: float, most: float = MAX_SECONDS) -> float:
    """Return the duration at ``key``, in seconds. Raises :class:`~.responses.RequestRefused` (400) for anything but a
    number above 0 and at most ``most``, by default 30 days."""
    value = body.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        raise RequestRefused(400, "INVALID_PARAMS", f"{key} must be a number of seconds, at most {most:.0f}")
    return float(value)


def _matches(ref: ArtifactRef, capability: str | None, mime_type: str | None, text: str) -> bool:
    return (
        (not capability or ref.source.get("capability") == capability)
        and (not mime_type or ref.mime_type.startswith(mime_type))
        and (not text or any(text in str(value).casefold() for value in _searched(ref)))
    )


def _searched(ref: ArtifactRef) -> tuple[object, ...]:
    return ref.filename, ref.id, ref.source.get("capability", "")


def _limit(text: str | None) -> int:
    if text is None:
        return _PAGE
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) > 0):
        raise RequestRefused(400, "INVALID_PARAMS", "limit must be a whole number above 0")
    return min(int(text), _MAX_PAGE)
