"""What an app can do, as far as it said so: lists put together, changes, and what a caller should be told. No I/O."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from ..errors import CapabilityError, ProtocolError
from .declarations import Capability, parse

__all__ = ["Capabilities", "CapabilitiesChanged", "deprecation_warnings", "with_suggestions"]

logger = logging.getLogger("transports")

#: Entries that make no sense and are named one by one.
_NAMED = 5
#: Names that are searched for one like a wrong one.
_SEARCHED = 5000


@dataclass(frozen=True, slots=True)
class CapabilitiesChanged:
    """The session's ``capabilities`` are others now; these are the names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Capabilities(Mapping[str, Capability]):
    """Capabilities by name. Each is read when it is asked for: an app may list a hundred thousand (FAULTS 22)."""

    def __init__(self, entries: Mapping[str, Mapping[str, object]] | None = None) -> None:
        self._entries = entries or {}
        self._read: dict[str, Capability] = {}

    def __getitem__(self, name: str) -> Capability:
        if name not in self._read:
            entry = self._entries[name]
            try:
                self._read[name] = parse(Capability, entry, f"what the app says of {name}")
            except ProtocolError as error:
                logger.warning("%s; only its name is taken", error.message)
                self._read[name] = Capability(name=name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def merge(self, listed: object) -> Capabilities:
        """With what a list says, plain or wrapped (PROTOCOL): where both say something of a capability, the list is
        right. An entry that makes no sense is left out, with a warning."""
        entries = dict(self._entries)
        wrong = 0
        for item in _items(listed):
            entry = {"name": item} if isinstance(item, str) else item
            name = entry.get("name") if isinstance(entry, Mapping) else None
            if not isinstance(entry, Mapping) or not isinstance(name, str):
                wrong += 1
                if wrong <= _NAMED:
                    logger.warning("left out of the app's capabilities: %.80r has no name", item)
                continue
            before = entries.get(name)
            entries[name] = (
                {**before, **{key: value for key, value in entry.items() if value is not None}} if before else entry
            )
        return Capabilities(entries)

    def only(self, names: Iterable[str]) -> Capabilities:
        """Those of ``names`` only."""
        return Capabilities({name: self._entries[name] for name in names if name in self._entries})

    def apply_change(self, change: object) -> Capabilities:
        """After ``{added, removed, changed}``: names, or capabilities as they are listed."""
        said: Mapping[str, object] = change if isinstance(change, Mapping) else {}
        after = self.merge(said.get("added")).merge(said.get("changed"))
        removed = Capabilities().merge(said.get("removed"))
        return after.only(name for name in after if name not in removed)

    def with_manifest(self, declared: Iterable[Capability]) -> Capabilities:
        """With the description and schemas that only the manifest has. What the running app says stands, and what is in
        the manifest alone cannot be called (PROTOCOL "Discovery")."""
        entries = dict(self._entries)
        for capability in declared:
            if entry := entries.get(capability.name):
                more = capability.model_dump(by_alias=True, include={"description", "input_schema", "output_schema"})
                entries[capability.name] = {
                    **entry,
                    **{key: value for key, value in more.items() if not entry.get(key)},
                }
        return Capabilities(entries)

    def diff(self, before: Capabilities) -> CapabilitiesChanged:
        """What became of ``before``."""
        return CapabilitiesChanged(
            added=tuple(name for name in self if name not in before),
            removed=tuple(name for name in before if name not in self),
            changed=tuple(name for name in self if name in before and self._entries[name] != before._entries[name]),
        )


def _items(listed: object) -> Iterable[object]:
    if isinstance(listed, Mapping):
        listed = listed.get("data", listed.get("capabilities"))
        if isinstance(listed, Mapping):
            listed = listed.get("capabilities")
    return listed if isinstance(listed, list) else []


def deprecation_warnings(capability: Capability) -> list[str]:
    """What a caller of this capability should know, once."""
    notes: list[str] = []
    if capability.deprecated:
        instead = f"; use {', '.join(capability.alternatives)}" if capability.alternatives else ""
        said = f": {capability.deprecation_message}" if capability.deprecation_message else ""
        notes.append(f"{capability.name} is deprecated{said}{instead}")
    if capability.experimental:
        notes.append(f"{capability.name} is experimental and may change")
    return notes


def with_suggestions(error: CapabilityError, name: str, known: Mapping[str, Capability]) -> CapabilityError:
    """The app's error with what is known here: other names, and the requirement that is not met."""
    hints: list[str] = []
    if error.code == "UNKNOWN_CAPABILITY":
        close = difflib.get_close_matches(name, list(islice(known, _SEARCHED)), n=3, cutoff=0.5)
        error.alternatives = tuple(close) or error.alternatives or tuple(sorted(islice(known, _SEARCHED))[:8])
        listed = ", ".join(error.alternatives) or "none"
        hints.append(f"did you mean {listed}?" if close else f"the app has {listed}")
    elif error.alternatives:
        hints.append(f"instead there is {', '.join(error.alternatives[:8])}")
    if error.code in ("CAPABILITY_UNAVAILABLE", "REQUIREMENT_NOT_MET") and name in known:
        unmet = [requirement for requirement in known[name].requirements if not requirement.met]
        hints += [
            f"it needs {item.description or item.type}" + (f": {item.resolution}" if item.resolution else "")
            for item in unmet[:3]
        ]
    if hints:
        error.message = "; ".join((error.message, *hints))
        error.args = (error.message,)
    return error
