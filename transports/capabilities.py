"""What an app can do, as far as it said so: lists put together, changes, and what a caller should be told. No I/O."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import CapabilityError, ProtocolError
from .events import CapabilitiesChanged
from .messages import Capability, parse

__all__ = ["cautions", "changed", "difference", "explained", "merged", "parse_list"]

logger = logging.getLogger("transports")


def parse_list(payload: object) -> list[Capability]:
    """What ``listCapabilities`` answered, plain or wrapped (PROTOCOL). An entry that makes no sense is left out, with
    a warning."""
    if isinstance(payload, Mapping):
        payload = payload.get("data", payload.get("capabilities"))
        if isinstance(payload, Mapping):
            payload = payload.get("capabilities")
    listed: list[Capability] = []
    for item in payload if isinstance(payload, list) else []:
        try:
            listed.append(parse(Capability, item, "a capability in the app's list"))
        except ProtocolError as error:
            logger.warning("left out: %s", error.message)
    return listed


def merged(*lists: Iterable[Capability]) -> dict[str, Capability]:
    """Capabilities by name. A later list adds to an earlier one, and where both say something the later one wins."""
    known: dict[str, Capability] = {}
    for capability in (item for items in lists for item in items):
        before = known.get(capability.name)
        said = {field: getattr(capability, field) for field in capability.model_fields_set}
        known[capability.name] = before.model_copy(update=said) if before else capability
    return known


def changed(known: Mapping[str, Capability], payload: object) -> dict[str, Capability]:
    """``known`` after ``{added, removed, changed}``: names, or capabilities as they are listed."""
    change: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    after = dict(known)
    for kind in ("added", "changed"):
        for capability in parse_list(change.get(kind)):
            after.update(merged([after[capability.name]] if capability.name in after else [], [capability]))
    for capability in parse_list(change.get("removed")):
        after.pop(capability.name, None)
    return after


def difference(before: Mapping[str, Capability], after: Mapping[str, Capability]) -> CapabilitiesChanged:
    """What became of ``before``."""
    return CapabilitiesChanged(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(name for name in after if name in before and after[name] != before[name]),
    )


def cautions(capability: Capability) -> list[str]:
    """What a caller of this capability should know, once."""
    notes: list[str] = []
    if capability.deprecated:
        instead = f"; use {', '.join(capability.alternatives)}" if capability.alternatives else ""
        said = f": {capability.deprecation_message}" if capability.deprecation_message else ""
        notes.append(f"{capability.name} is deprecated{said}{instead}")
    if capability.experimental:
        notes.append(f"{capability.name} is experimental and may change")
    return notes


def explained(error: CapabilityError, name: str, known: Mapping[str, Capability]) -> CapabilityError:
    """The app's error with what is known here: other names, and the requirement that is not met."""
    hints: list[str] = []
    if error.code == "UNKNOWN_CAPABILITY":
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        error.alternatives = tuple(close) or error.alternatives or tuple(sorted(known)[:8])
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
