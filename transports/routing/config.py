"""Routing as a settings file says it: the table ``[routing]`` of ``abp.toml``, for all apps and for single servers::

[routing]
max_inline_chars = 20000

[routing.servers.tableau]
preset = "tableau"
agent = { max_bytes = 20000 }

[[routing.servers.tableau.tool_fields.export_crosstab]]
path = "$.sheets[*].content"
mime_type = "text/csv"
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..errors import UsageError
from .policy import RoutingPolicy
from .presets import ABP, named_preset, preset, words_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["RoutingConfig"]

#: Settings that are tables of settings: a table in the file changes only what it names.
_NESTED = ("resources", "agent")
_SERVERS, _PRESET = "servers", "preset"


@dataclass(frozen=True, slots=True)
class RoutingConfig:
    """Settings of the routing for all apps (``general``), and for servers by a word of the name that they give
    themselves.

    Keys are those of :class:`.RoutingPolicy` except ``transformer``, and ``preset``. :meth:`parse` checks them.
    """

    general: Mapping[str, object] = field(default_factory=dict)
    servers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @classmethod
    def parse(cls, table: object, where: str) -> RoutingConfig:
        """Return the settings of the table ``[routing]``. ``where`` names it in errors: ``abp.toml: routing``.

        Raises :class:`~transports.errors.UsageError`, which names the key at fault.
        """
        general = dict(_table(table, where))
        servers = _table(general.pop(_SERVERS, {}), f"{where}.{_SERVERS}")
        config = cls(general, {name: _table(value, f"{where}.{_SERVERS}.{name}") for name, value in servers.items()})
        for key, settings in ((where, general), *((f"{where}.{_SERVERS}.{n}", s) for n, s in config.servers.items())):
            _check_preset(settings, key)
            _changed(ABP, settings, key)
        return config

    def policy(self, server: str, *, presets: bool) -> RoutingPolicy:
        """Return the policy for a server by the name that it gives itself.

        What the file says of this server comes before what it says of all. Both come on top of the preset that the file
        names, else, with ``presets``, of the one for servers of this name (:func:`.preset`).
        """
        words = words_of(server)
        own = next((settings for name, settings in self.servers.items() if name.lower() in words), {})
        named = own.get(_PRESET, self.general.get(_PRESET))
        base = named_preset(str(named)) if named else preset(server) if presets else ABP
        return _changed(_changed(base, self.general, ""), own, "")


def _table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be a table, [{where.rpartition(': ')[2]}]")
    return cast(Mapping[str, object], value)


def _check_preset(settings: Mapping[str, object], where: str) -> None:
    if _PRESET in settings:
        try:
            named_preset(str(settings[_PRESET]))
        except UsageError as error:
            raise UsageError(f"{where}.{_PRESET}: {error.message}") from None


def _changed(base: RoutingPolicy, settings: Mapping[str, object], where: str) -> RoutingPolicy:
    """``base`` with what ``settings`` say. Rules are added to those of the base; a tool that both name has its own."""
    given = {key: value for key, value in settings.items() if key != _PRESET}
    if not given:
        return base
    known = {item.name for item in fields(RoutingPolicy)} - {"transformer"}
    for key in given.keys() - known:
        close = difflib.get_close_matches(key, [*known, _PRESET], n=1)
        raise UsageError(f"{where}.{key}: unknown" + (f"; do you mean {close[0]}?" if close else ""))
    from pydantic import ValidationError  # late: most programs have no such table

    readable = _readable(given, where)
    try:
        checked = _adapter().validate_python(readable)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"{where}.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except UsageError as error:  # a value of the right type that makes no sense
        raise UsageError(f"{where}: {error.message}") from error
    changes = {key: getattr(checked, key) for key in given}
    for key in given.keys() & {*_NESTED}:
        changes[key] = replace(
            getattr(base, key), **{name: getattr(changes[key], name) for name in cast(dict[str, object], given[key])}
        )
    if "tool_fields" in changes:
        changes["tool_fields"] = {**base.tool_fields, **changes["tool_fields"]}
    return replace(base, **changes)


def _readable(settings: Mapping[str, object], where: str) -> Mapping[str, object]:
    """``settings`` with what TOML cannot write: ``"none"`` for no limit, hexadecimal digits for the bytes of a
    signature."""
    read = {
        key: _readable(value, where) if isinstance(value, dict) and key in _NESTED else value
        for key, value in settings.items()
    }
    read |= {key: None for key, value in read.items() if key.startswith("max_") and value == "none"}
    signatures = read.get("signatures")
    if isinstance(signatures, list):
        try:
            read["signatures"] = [
                {**one, "magic": bytes.fromhex(one["magic"])} if isinstance(one, dict) and "magic" in one else one
                for one in signatures
            ]
        except (TypeError, ValueError):
            raise UsageError(f'{where}.signatures: magic must be hexadecimal digits, such as "41 43 4d 45"') from None
    return read


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[RoutingPolicy]:
    from pydantic import TypeAdapter

    return TypeAdapter(RoutingPolicy)
