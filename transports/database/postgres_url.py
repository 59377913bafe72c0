"""Addresses of PostgreSQL databases, as libpq reads them: ``postgresql://[user[:password]@]host[:port][,…]/db[?…]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, unquote_plus

__all__ = ["PostgresUrl", "without_password"]

_HOST = r"(?:\[[^\]@/?]*\]|[^:/,@?\[\]]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^@?]*)?")
#: A parameter; only some have an @ in their values.
_PARAMETER = re.compile(
    r"[A-Za-z_]+=[^@]*|(?:application_name|dbname|fallback_application_name|host|options|passfile|password|run|service|"
    r"sslpassword|user)=.*"
)


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The parts of an address. ``head`` is all before the parameters, with the password; ``shown`` the same without.

    A ``/``, ``?`` or ``@`` in a password that is not quoted leaves doubt where it ends: what is read here is the
    shortest password behind which a place and parameters follow, and ``certain`` is whether libpq reads the same."""

    head: str
    shown: str
    parameters: tuple[str, ...]
    password: str
    certain: bool

    @classmethod
    def read(cls, url: str) -> Self:
        """Return the parts of ``url``. Raises nothing."""
        scheme, mark, rest = url.partition("://")
        starts = [0, *(match.end() for match in re.finditer("@", rest))]
        start = next((at for at in starts if _is_place(rest[at:])), starts[-1])
        userinfo = rest[: max(start - 1, 0)]
        place, question, query = rest[start:].partition("?")
        own = re.match("[^@/]*@", rest)  # libpq looks for the user no further
        shown = re.split("[:/?#@]", userinfo)[0] + "@" * bool(start)
        if re.search("[?&][^=&]*pass", userinfo, re.IGNORECASE):  # perhaps this is the end of that password
            place, question, query, head = "…", "", "", url
        else:
            head = url.removesuffix(question + query)
        return cls(
            head,
            f"{scheme}{mark}{shown}{place}",
            tuple(query.split("&")) if query else (),
            userinfo.partition(":")[2],
            start == (own.end() if own else 0) and not re.search("[/?#]", userinfo),
        )

    def take(self, name: str) -> tuple[str, str | None]:
        """Return the address without the parameter ``name``, and its last value."""
        mine = [one for one in self.parameters if one.partition("=")[0] == name]
        value = unquote_plus(mine[-1].partition("=")[2]) if mine else None
        return _joined(self.head, [one for one in self.parameters if one not in mine]), value

    @property
    def without_password(self) -> str:
        """An address that leads to the same database where the password comes from ``PGPASSWORD`` or a password
        file."""
        known = [one for one in self.parameters if _PARAMETER.fullmatch(one) and not _is_secret(one)]
        return _joined(self.shown, known)

    @property
    def secrets(self) -> set[str] | None:
        """What no message may quote; ``None`` where that cannot be told: libpq quotes what it then takes for the port,
        or for a parameter."""
        if not self.certain or not all(map(_PARAMETER.fullmatch, self.parameters)):
            return None
        given = [self.password, *(one.partition("=")[2] for one in self.parameters if _is_secret(one))]
        return {secret for one in given if one for secret in (one, unquote(one))}


def without_password(url: str) -> str:
    """Return :attr:`PostgresUrl.without_password` of an address."""
    return PostgresUrl.read(url).without_password


def _is_place(text: str) -> bool:
    place, _, query = text.partition("?")
    return _PLACE.fullmatch(place) is not None and (not query or all(map(_PARAMETER.fullmatch, query.split("&"))))


def _is_secret(parameter: str) -> bool:
    return "pass" in unquote(parameter.partition("=")[0]).lower()


def _joined(head: str, parameters: list[str]) -> str:
    return f"{head}{'?' * bool(parameters)}{'&'.join(parameters)}"
