"""Hosts to imitate, as data: what each says of itself, grants and limits (``hosts/*.toml``, docs/views.md)."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from ..._internal.files import read_regular
from ...errors import UsageError
from ...playwright._scripts import load_script
from ...protocol._strict_json import decode_given, encode_json, parser_limits

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]
_DOCTYPE = re.compile(r"\ufeff?\s*<!doctype[^>]{0,1000}>", re.IGNORECASE)
_DIRECTIVE = re.compile(r"[a-z]{1,20}(?:-[a-z]{1,20}){0,3}")
_SOURCE = re.compile(r"[^\s;,]{1,500}")


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Source(_Data, frozen=True):
    """Origin of facts of a profile: ``what``, its ``address``, and the ``day`` of which they are."""

    what: str
    address: str
    day: datetime.date


class HostLimits(_Data, frozen=True):
    """Limits of a host: characters of a result of the server, and seconds of a call. ``None`` if it has none, or they
    are unknown."""

    result_characters: Annotated[int, msgspec.Meta(gt=0)] | None = None
    call_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class HostProfile(_Data, frozen=True):
    """A host to imitate.

    ``name`` and ``version`` are what it calls itself. ``capabilities`` are ``hostCapabilities``, word for word: a
    request that has none there is refused. ``csp_sources`` maps directives to sources that it adds to the policy of
    each view. ``app_tools`` says whether it calls the tools of views, ``openai`` whether they have ``window.openai``.
    ``styles`` maps CSS variables to values. ``unknown`` names facts that have no source."""

    name: str
    sources: Annotated[Sequence[Source], msgspec.Meta(min_length=1)]
    capabilities: dict[str, Any]
    display_modes: Annotated[Sequence[DisplayMode], msgspec.Meta(min_length=1)]
    version: str = ""
    app_tools: bool = True
    platform: Literal["web", "desktop", "mobile"] = "desktop"
    user_agent: str = ""
    openai: bool = False
    limits: HostLimits = HostLimits()
    csp_sources: Mapping[str, Sequence[str]] = {}
    styles: Mapping[str, str] = {}
    unknown: Sequence[str] = ()


def host_names() -> Sequence[str]:
    """Return the names of the hosts that come with the kit, ``spec`` first."""
    names = sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))
    return ["spec", *(name for name in names if name != "spec")]


def read_profile(host: str | Path) -> HostProfile:
    """Return the profile of a host by its name, or from a file (``.toml`` or ``.json``).

    Raises :class:`~transports.errors.UsageError` if there is none, or if it is not a profile."""
    if isinstance(host, str) and host in host_names():
        return _bundled_profile(host)
    path = Path(host)
    if path.suffix not in (".toml", ".json"):
        raise UsageError(f"unknown host {str(host)!r}; use one of {', '.join(host_names())}, or a path to a TOML file")
    try:
        content = read_regular(path, 1 << 20)
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read ({error.strerror or error}); correct the path") from None
    return _decode_profile(content, path.suffix, str(path))


@functools.cache
def _bundled_profile(name: str) -> HostProfile:
    return _decode_profile((_folder() / f"{name}.toml").read_bytes(), ".toml", name)


def _folder() -> Any:
    return resources.files(__package__) / "hosts"


def _decode_profile(content: bytes, suffix: str, name: str) -> HostProfile:
    """Decode a profile, and check the sources that it adds to policies. ``suffix`` is ``.json`` or ``.toml``."""
    try:
        if suffix == ".json":
            profile = msgspec.convert(decode_given(content, f"the profile {name}"), HostProfile)
        else:
            with parser_limits():
                profile = msgspec.toml.decode(content, type=HostProfile)
    except ValueError as error:
        raise UsageError(f"the profile {name} cannot be read: {error}") from None
    for directive, sources in profile.csp_sources.items():
        if not _DIRECTIVE.fullmatch(directive) or not all(map(_SOURCE.fullmatch, sources)):
            raise UsageError(f"the profile {name} has no sources of a policy at csp_sources.{directive}")
    return profile


def with_openai(html: str, properties: Mapping[str, object]) -> str:
    """Return the document of a view with ``window.openai``, which has ``properties``, before its first script."""
    script = (_folder() / "openai.js").read_text(encoding="utf-8")
    values = encode_json(properties).decode().replace("<", "\\u003c")
    natives = load_script("natives.js")
    doctype = ""
    match = _DOCTYPE.match(html)
    if match is not None:  # a script before the doctype would change how the page is laid out
        doctype = match[0]
    return f"{doctype}<script>({script})(({natives})(false), {values});</script>{html.removeprefix(doctype)}"
