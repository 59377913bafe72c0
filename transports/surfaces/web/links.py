"""Signed words, each good until a time: links that open one artifact, tokens for one session, cookies. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable

from itsdangerous import BadData, URLSafeSerializer

from ...errors import ABPError

__all__ = ["Expired", "Links"]


class Expired(ABPError):
    """It was valid once."""

    code = "REFERENCE_EXPIRED"


class Links:
    """Signs with ``key``. Whoever has the key makes links that every server with it accepts. ``clock`` gives seconds
    since 1970."""

    def __init__(self, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._links = URLSafeSerializer(key, salt="abp.link")
        self._tokens = URLSafeSerializer(key, salt="abp.session")
        self._cookies = URLSafeSerializer(key, salt="abp.cookie")

    def path(self, artifact_id: str, expires_at: float) -> str:
        """The path and query that open an artifact until ``expires_at``."""
        return f"/artifacts/{artifact_id}?link={self._links.dumps([artifact_id, int(expires_at)])!s}"

    def opens(self, signed: str, artifact_id: str) -> bool:
        """Whether ``signed`` is from a link to this artifact. Raises :class:`Expired`."""
        said = self._read(self._links, signed)
        return said is not None and said[0] == artifact_id

    def token(self, session: str, expires_at: float) -> str:
        """A token for one session."""
        return f"abps.{self._tokens.dumps([session, int(expires_at)])!s}"

    def session_of(self, token: str) -> tuple[str, int] | None:
        """The session that a token is for, and until when; ``None`` if it is none of ours. Raises :class:`Expired`."""
        return self._read(self._tokens, token.removeprefix("abps.")) if token.startswith("abps.") else None

    def cookie(self, who: str, expires_at: float) -> str:
        """What a browser keeps: it holds over a restart of the server."""
        return str(self._cookies.dumps([who, int(expires_at)]))

    def holder_of(self, cookie: str) -> tuple[str, int] | None:
        """For whom a cookie was made, and until when; ``None`` if it is none of ours. Raises :class:`Expired`."""
        return self._read(self._cookies, cookie)

    def _read(self, serializer: URLSafeSerializer, signed: str) -> tuple[str, int] | None:
        try:
            said = serializer.loads(signed)
        except BadData:
            return None
        match said:
            case [str(what), int(until)]:
                if self.clock() >= until:
                    raise Expired("it has expired; have another one made")
                return what, until
        return None
