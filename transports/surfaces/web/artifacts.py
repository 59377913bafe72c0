"""``/artifacts``: list, look at, fetch, check, remove, link."""

from __future__ import annotations

import hashlib
from contextlib import aclosing

from aiohttp import web

from ...artifacts import ArtifactRef, ArtifactStore, Scope
from ...errors import Corrupt
from ...protocol.timestamps import iso_utc
from .access import Visitor
from .answers import Refused, body_of, json_answer
from .arrivals import Arrivals
from .content import content
from .documents import meta_of
from .links import Expired, Links
from .metrics import Metrics

__all__ = ["Artifacts", "seconds_in"]

#: Artifacts in one page of a list, and of how many a listing is remembered (a KB each).
_PAGE, _MOST, _HELD = 100, 500, 20_000
list_ = list  # there is a method of that name
#: The longest that a link or a session's token holds, in seconds.
_LONGEST = 30 * 86400.0


class Artifacts:
    """The artifacts of one store, each visitor seeing those of their scope."""

    def __init__(self, store: ArtifactStore, arrivals: Arrivals, links: Links, metrics: Metrics) -> None:
        self._store = store
        self._arrivals = arrivals
        self._links = links
        self._metrics = metrics
        #: The last listing of all, and the store's mark of that time.
        self._listed: tuple[object, list_[ArtifactRef]] = None, []

    def view(self, visitor: Visitor) -> ArtifactStore:
        """The store as the visitor sees it."""
        return self._store.scoped(visitor.scope)

    async def fetch(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``GET /artifacts/{id}``."""
        view = self.view(visitor)
        return await content(request, view, await view.stat(request.match_info["id"]), self._metrics)

    async def linked(self, request: web.Request) -> web.StreamResponse:
        """The content for whoever has a signed link to it."""
        key = request.match_info["id"]
        try:
            opens = self._links.opens(request.query["link"], key)
        except Expired as error:
            raise Refused(410, error.code, f"this link is over: {error.message}") from None
        if not opens:
            raise Refused(404, "ARTIFACT_NOT_FOUND", "this link leads nowhere")
        return await content(request, self._store, await self._store.stat(key), self._metrics)

    async def meta(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``GET /artifacts/{id}/meta``."""
        return json_answer(meta_of(await self.view(visitor).stat(request.match_info["id"])))

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Newest first. The cursor is the id of the last one shown, with when it was made: it holds also when that one
        is gone."""
        query = request.query
        view = self.view(visitor)
        if session := query.get("session"):
            if visitor.scope.session not in (None, session):
                return json_answer({"artifacts": [], "next": None, "total": 0})
            view = view.scoped(Scope(session=session[:200]))
        capability, kind, words = query.get("capability"), query.get("type"), query.get("q", "").casefold()
        found = [ref for ref in reversed(await self._all(view)) if _matches(ref, capability, kind, words)]
        total, after = len(found), query.get("after")
        if after:
            created, _, key = after.partition("~")
            found = [ref for ref in found if _age(ref) < (created, key)]
        limit = _limit(query.get("limit"))
        page = found[:limit]
        more = "~".join(_age(page[-1])) if page and len(found) > limit else None
        return json_answer({"artifacts": [meta_of(ref) for ref in page], "next": more, "total": total})

    async def _all(self, view: ArtifactStore) -> list_[ArtifactRef]:
        """What the view sees, oldest first. People look through many pages of what has not changed meanwhile."""
        mark = (
            None if self._store.retention else await self._store.change_token()
        )  # time alone changes what is kept for a time
        if mark is None:
            return await view.list()
        if mark != self._listed[0]:
            listed = await self._store.list()
            if len(listed) > _HELD:
                return [ref for ref in listed if view.scope.covers(ref.scope)]
            self._listed = mark, listed
        return [ref for ref in self._listed[1] if view.scope.covers(ref.scope)]

    async def delete(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``DELETE /artifacts/{id}``."""
        view, key = self.view(visitor), request.match_info["id"]
        await view.stat(key)  # says who may not
        await view.delete(key)
        self._arrivals.look()
        return web.Response(status=204)

    async def verify(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``POST /artifacts/{id}/verify``: all of it is read again."""
        view = self.view(visitor)
        ref = await view.stat(request.match_info["id"])
        digest, size = hashlib.sha256(), 0
        try:
            async with aclosing(view.open(ref.id)) as pieces:
                async for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
        except Corrupt as error:
            return json_answer({"ok": False, "sha256": None, "size_bytes": size, "message": error.message})
        whole = (digest.hexdigest(), size) == (ref.sha256, ref.size_bytes)
        return json_answer({"ok": whole, "sha256": digest.hexdigest(), "size_bytes": size})

    async def link(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``POST /artifacts/{id}/link``. A session's link ends with its token at the latest."""
        ref = await self.view(visitor).stat(request.match_info["id"])
        seconds = seconds_in(await body_of(request), "expires", 3600.0)
        until = self._links.clock() + seconds
        if visitor.until is not None:
            until = min(until, visitor.until)
        url = f"{request.scheme}://{request.host}{self._links.path(ref.id, until)}"
        return json_answer({"url": url, "expires_at": iso_utc(until, timespec="seconds")}, status=201)


def seconds_in(body: dict[str, object], key: str, default: float) -> float:
    """A length of time. Raises :class:`~.answers.Refused`."""
    value = body.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _LONGEST:
        raise Refused(400, "INVALID_PARAMS", f"{key} must be a number of seconds, at most {_LONGEST:.0f}")
    return float(value)


def _matches(ref: ArtifactRef, capability: str | None, kind: str | None, words: str) -> bool:
    return (
        (not capability or ref.source.get("capability") == capability)
        and (not kind or ref.mime_type.startswith(kind))
        and (not words or any(words in str(text).casefold() for text in _searched(ref)))
    )


def _searched(ref: ArtifactRef) -> tuple[object, ...]:
    return ref.filename, ref.id, ref.source.get("capability", "")


def _age(ref: ArtifactRef) -> tuple[str, str]:
    """Sorts as stores list: the oldest first."""
    return str(ref.source.get("created", "")), ref.id


def _limit(text: str | None) -> int:
    if text is None:
        return _PAGE
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) > 0):
        raise Refused(400, "INVALID_PARAMS", "limit must be a whole number above 0")
    return min(int(text), _MOST)
