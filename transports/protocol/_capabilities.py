"""Capabilities of an app: merged lists, changes, warnings and suggestions for callers, answers to calls."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .._internal import notebook
from ..errors import CapabilityError, DiscoveryFailed, ProtocolError
from ._plain_text import similar_names
from ._strict_json import items_of, members_of
from .schema import unnamed_params

if TYPE_CHECKING:
    from ._declarations import Capability, Manifest

logger = logging.getLogger("transports")

#: Number of capabilities above which they are merged and compared in a thread (measured: 3 µs for each).
MANY = 3000
#: Maximum capabilities of one app, over all messages and pages. The rest is left out, with a warning.
MAX_CAPABILITIES = 150_000
#: Codes of errors that a requirement of the capability explains.
_UNMET = frozenset(
    {"CAPABILITY_UNAVAILABLE", "REQUIREMENT_NOT_MET", "PERMISSION_DENIED", "PERMISSION_REQUIRED", "PRECONDITION_FAILED"}
)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CapabilitiesChanged:
    """Event: a session's ``capabilities`` have changed. Holds the names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a discovery: either a ``manifest`` or the ``reason`` why there is none.

    ``page_url`` and ``manifest_url`` are the URLs after redirects, without user info; ``manifest_url`` is ``None`` if
    the page has no manifest link. ``title`` has one line of at most 200 characters. ``manifest_type`` is the media type
    that the manifest was served with. ``warnings`` name the parts of the manifest that are missing or were left out,
    and an unexpected version or type."""

    page_url: str
    manifest_url: str | None = None
    title: str = ""
    manifest: Manifest | None = None
    manifest_type: str = ""
    warnings: tuple[str, ...] = ()
    reason: DiscoveryFailed | None = None


class Capabilities(Mapping[str, "Capability"]):
    """Immutable mapping of capabilities by name, in the app's order. An entry is parsed on first access: an app may
    list a hundred thousand (docs/faults.md 22). An invalid entry is reduced to its name, with a warning."""

    def __init__(self, entries: Mapping[str, Mapping[str, object]] | None = None) -> None:
        self._entries = entries or {}
        self._read: dict[str, Capability] = {}

    def __getitem__(self, name: str) -> Capability:
        if name not in self._read:
            from ._declarations import Capability, parse  # late, as it loads pydantic

            if name not in self._entries:
                unknown = CapabilityError(f"unknown capability {name!r}", code="UNKNOWN_CAPABILITY")
                raise KeyError(with_suggestions(unknown, str(name), self).message)
            entry = self._entries[name]
            try:
                self._read[name] = parse(Capability, entry, f"the app's entry for {name}")
            except ProtocolError as error:
                logger.warning("%s; only its name is taken", error.message)
                self._read[name] = Capability(name=name)
        return self._read[name]

    @overload
    def get(self, key: str, default: None = None, /) -> Capability | None: ...

    @overload
    def get(self, key: str, default: Capability | T, /) -> Capability | T: ...

    def get(self, key: str, default: object = None, /) -> object:
        """Return a capability, or ``default``. The inherited method would search for similar names first."""
        return self[key] if key in self._entries else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __repr__(self) -> str:
        if not self:
            return "<no capabilities>"
        names = [repr(name[:80]) for name in islice(self, 8)]
        if len(self) > 8:
            names.append("…")
        return f"<{len(self):,} capabilities: {', '.join(names)}>"

    def _repr_html_(self) -> str:
        rows = ((name, self[name].description) for name in self)
        return notebook.table(("capability", "description"), rows, count=len(self))

    def merge(self, listed: object) -> Capabilities:
        """``listed`` is an app's raw list (docs/protocol.md): names or objects, plain or wrapped in ``data`` and
        ``capabilities``. Its fields take precedence."""
        entries = dict(self._entries)
        nameless = 0
        over_limit = 0
        for item in _listed_entries(listed):
            entry = _named_entry(item)
            if entry is None:
                nameless += 1
                # A broken list may have many of them.
                if nameless <= 5:
                    logger.warning("left out of the app's capabilities: %.80r has no name", item)
                continue

            name = entry["name"]
            if name in entries:
                given_fields = {key: value for key, value in entry.items() if value is not None}
                entries[name] = {**entries[name], **given_fields}
            elif len(entries) >= MAX_CAPABILITIES:
                over_limit += 1
            else:
                entries[name] = entry

        if over_limit:
            logger.warning(
                "left out %s of the app's capabilities: the limit is %s",
                f"{over_limit:,}",
                f"{MAX_CAPABILITIES:,}",
            )
        return Capabilities(entries)

    def only(self, names: Iterable[str]) -> Capabilities:
        return Capabilities({name: self._entries[name] for name in names if name in self._entries})

    def apply_change(self, change: object) -> Capabilities:
        """``change`` is an app's notification ``{added, removed, changed}``; each part is a list as for
        :meth:`merge`."""
        parts = members_of(change)
        merged = self.merge(parts.get("added")).merge(parts.get("changed"))
        removed = Capabilities().merge(parts.get("removed"))
        return merged.only(name for name in merged if name not in removed)

    def with_manifest(self, declared: Iterable[Capability]) -> Capabilities:
        """The running app takes precedence. A capability that only the manifest has cannot be called, so it is not
        added (docs/protocol.md 7.5)."""
        entries = dict(self._entries)
        for capability in declared:
            entry = entries.get(capability.name)
            if entry:
                fields = capability.model_dump(by_alias=True, exclude_unset=True, exclude={"available", "view"})
                missing = {key: value for key, value in fields.items() if entry.get(key) in (None, "", [], {})}
                entries[capability.name] = {**entry, **missing}
        return Capabilities(entries)

    def diff(self, before: Capabilities) -> CapabilitiesChanged:
        return CapabilitiesChanged(
            added=tuple(name for name in self if name not in before),
            removed=tuple(name for name in before if name not in self),
            changed=tuple(name for name in self if name in before and self._entries[name] != before._entries[name]),
        )


def is_long(listed: object) -> bool:
    return len(_listed_entries(listed)) > MANY


def _listed_entries(listed: object) -> list[object]:
    if isinstance(listed, Mapping):
        listed = listed.get("data", listed.get("capabilities"))
        if isinstance(listed, Mapping):
            listed = listed.get("capabilities")
    return items_of(listed)


def _named_entry(item: object) -> Mapping[str, Any] | None:
    if isinstance(item, str):
        return {"name": item}
    if isinstance(item, Mapping) and isinstance(item.get("name"), str):
        return item
    return None


def deprecation_warnings(capability: Capability) -> list[str]:
    notes: list[str] = []
    if capability.deprecated:
        instead = f"; use {', '.join(capability.alternatives)}" if capability.alternatives else ""
        reason = f": {capability.deprecation_message}" if capability.deprecation_message else ""
        notes.append(f"{capability.name} is deprecated{reason}{instead}")
    if capability.experimental:
        notes.append(f"{capability.name} is experimental and may change")
    return notes


def find_capability(app: str, name: str, capabilities: Mapping[str, Capability]) -> Capability:
    if name in capabilities:
        return capabilities[name]
    raise with_suggestions(CapabilityError(f"{app} has no {name!r}", code="UNKNOWN_CAPABILITY"), name, capabilities)


def with_suggestions(
    error: CapabilityError, name: str, capabilities: Mapping[str, Capability], params: object = None
) -> CapabilityError:
    """Add suggestions to the message of the app's error, in place. ``name`` is the capability that was called."""
    called: Capability | None = None
    # Without `get`, which may come here again: the error of an unknown name has suggestions, too.
    if name in capabilities:
        called = capabilities[name]

    hints: list[str] = []
    if called is not None:
        hints += unnamed_params(called.input_schema, params)
    if error.code == "UNKNOWN_CAPABILITY":
        hints.append(_similar_capabilities(error, name, capabilities))
    elif error.alternatives:
        hints.append(f"instead there is {', '.join(error.alternatives[:8])}")
    if error.code in _UNMET and called is not None:
        unmet = [requirement for requirement in called.requirements if not requirement.met]
        for requirement in unmet[:3]:
            resolution = f": {requirement.resolution}" if requirement.resolution else ""
            hints.append(f"it needs {requirement.description or requirement.type}{resolution}")

    if hints:
        error.message = "; ".join((error.message, *hints))
        error.args = (error.message,)
    return error


def _similar_capabilities(error: CapabilityError, name: str, capabilities: Mapping[str, Capability]) -> str:
    """Return a hint about capabilities with a name like the unknown ``name``, which become the error's alternatives."""
    similar = similar_names(name, capabilities)
    if similar:
        error.alternatives = tuple(similar)
        return f"did you mean {', '.join(similar)}?"

    # Listed in the message, but not as alternatives: names that are not similar are no substitutes.
    # An app may have so many that sorting them all would take long.
    names = error.alternatives or tuple(sorted(islice(capabilities, 5000))[:8])
    if not names:
        return "the app has none"
    others = len(capabilities) - len(names)
    more = f" and {others} more" if others > 0 else ""
    return f"the app has {', '.join(names)}{more}"


def response_metadata(metadata: object) -> dict[str, float | bool]:
    """Return what an app says of its answer: ``duration`` in milliseconds and ``cached``. Others are left out."""
    if not isinstance(metadata, Mapping):
        return {}
    valid: dict[str, float | bool] = {}
    duration = metadata.get("duration")
    if isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < math.inf:
        valid["duration"] = duration
    cached = metadata.get("cached")
    if isinstance(cached, bool):
        valid["cached"] = cached
    return valid


def answered_data(payload: object, capability: str) -> object:
    """Raises :class:`~transports.errors.CapabilityError` if the call failed, and
    :class:`~transports.errors.ProtocolError` for a payload that is no answer. A plain success, the common case, skips
    the model."""
    if (
        type(payload) is dict
        and payload.get("success") is True
        and "error" not in payload
        and "cancelled" not in payload
    ):
        return payload.get("data")
    from ._declarations import parse  # late, as they load pydantic
    from ._payloads import Answer

    try:
        answer = parse(Answer, payload, f"the app's answer to {capability}")
    except ProtocolError as error:
        shape = "it must be {success: true, data} or {success: false, error: {code, message}}"
        raise ProtocolError(f"{error.message}; {shape}") from error.__cause__
    answer.raise_for_error(capability)
    return answer.data


def unknown_members_warning(payload: object) -> str | None:
    """Return the warning for a successful answer that has no ``data`` but members that ABP does not know."""
    if not isinstance(payload, Mapping) or "data" in payload:
        return None
    names = [str(name) for name in payload if name not in ("success", "error", "metadata", "cancelled")]
    if not names:
        return None
    listed = ", ".join(repr(name[:40]) for name in names[:5])
    return f"the answer has no data; its members {listed} were left out: have the app return {{success: true, data}}"
