"""Signed values that expire: links that open one artifact, tokens for a scope, cookies. No I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from itsdangerous import BadData, URLSafeSerializer

from ...artifacts import Scope
from ...errors import ABPError

__all__ = ["MAX_SECONDS", "Expired", "Signer", "decode_scope", "encode_scope"]

#: Longest life of what is signed, in seconds.
MAX_SECONDS = 30 * 86400.0
#: Seconds by which the clock may have been set back since a value was signed. One that ends later than its longest life
#: allows was signed by a clock that was further ahead, and would be good for ever.
_MAX_SET_BACK = 86400.0


class Expired(ABPError):
    """Raised for a value with a good signature whose time is over, or lasts longer than any may. The session survives;
    ask for a new value."""

    code = "REFERENCE_EXPIRED"


class Signer:
    """Signs with ``key``: every server that has the key accepts what another one has signed.

    Links, tokens and cookies are signed apart: none of them is good as another. ``clock`` gives seconds since 1970.
    """

    def __init__(self, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._links = URLSafeSerializer(key, salt="abp.link")
        self._tokens = URLSafeSerializer(key, salt="abp.scope")
        self._cookies = URLSafeSerializer(key, salt="abp.cookie")

    def link_path(self, artifact_id: str, expires_at: float) -> str:
        """Return the path and query that open an artifact until ``expires_at``."""
        return f"/artifacts/{artifact_id}?link={self._links.dumps([artifact_id, int(expires_at)])!s}"

    def link_opens(self, signed: str, artifact_id: str) -> bool:
        """Whether ``signed``, from the query of a link, opens this artifact. Raises :class:`Expired`."""
        content = self._read(self._links, signed)
        return content is not None and content[0] == artifact_id

    def scope_token(self, scope: Scope, expires_at: float) -> str:
        """Return a bearer token for one scope, such as a tenant or a session."""
        return f"abps.{self._tokens.dumps([encode_scope(scope), int(expires_at)])!s}"

    def read_scope_token(self, token: str) -> tuple[Scope, int] | None:
        """Return the scope of a token and when it expires; ``None`` for a token that is not signed with this key.
        Raises :class:`Expired`."""
        content = self._read(self._tokens, token.removeprefix("abps.")) if token.startswith("abps.") else None
        return (decode_scope(content[0]), content[1]) if content else None

    def cookie(self, holder: str, expires_at: float) -> str:
        """Return the value of a cookie for ``holder``. It stays good when the server restarts."""
        return str(self._cookies.dumps([holder, int(expires_at)]))

    def read_cookie(self, cookie: str) -> tuple[str, int] | None:
        """Return the holder of a cookie and when it expires; ``None`` for one that is not signed with this key.
        Raises :class:`Expired`."""
        return self._read(self._cookies, cookie)

    def _read(self, serializer: URLSafeSerializer, signed: str) -> tuple[str, int] | None:
        if not signed.isascii():  # loads() would raise an error of its own for bytes of a header that are no text
            return None
        try:
            content = serializer.loads(signed)
        except BadData:
            return None
        match content:
            case [str(subject), int(expires_at)]:
                if not 0 < expires_at - self.clock() <= MAX_SECONDS + _MAX_SET_BACK:
                    raise Expired("it has expired; have another one made")
                return subject, expires_at
        return None


def encode_scope(scope: Scope) -> str:
    """Return a scope as the text that is signed."""
    return json.dumps(dict(scope.items()))


def decode_scope(text: str) -> Scope:
    """Return the scope of a text by :func:`encode_scope`. The text must come from a signed value."""
    return Scope(**json.loads(text))
