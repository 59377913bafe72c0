"""Settings of a file under the names of the document that docs/requirements.md R2 follows. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from ..errors import UsageError

#: Names of the document, with those of :class:`.RoutingPolicy` and its parts.
POLICY_NAMES = {"max_inline_size": "max_inline_chars", "artifact_fields": "tool_fields"}
RULE_NAMES = {"field_path": "path", "summary_template": "summary"}
AGENT_NAMES = {"max_observation_chars": "max_bytes"}
DETECTION_NAMES = {
    "enabled": "heuristics",
    "min_size_for_detection": "min_guessed_chars",
    "max_decode_bytes": "max_decode_bytes",
    "require_magic_bytes": "require_magic_bytes",
}
_NO_LIMIT = "none"


def in_own_names(settings: Mapping[str, object], where: str) -> dict[str, object]:
    """Return the settings of a policy with the names of this kit; names that are unknown to the document stay.

    Raises :class:`~transports.errors.UsageError` for a setting that is given under both names, and for a signature that
    is not the beginning of base64."""
    own = _renamed(settings, POLICY_NAMES, where)
    if own.pop("auto_artifact_large_content", True) is False:
        own |= {"max_inline_chars": _NO_LIMIT, "max_inline_bytes": _NO_LIMIT}
    detection = own.pop("binary_detection", None)
    if isinstance(detection, dict):
        _add(own, _detection(detection, f"{where}.binary_detection"), f"{where}.binary_detection")
    elif detection is not None:
        raise UsageError(f"{where}.binary_detection: must be a table")
    agent = own.get("agent")
    if isinstance(agent, dict):
        agent = own["agent"] = _renamed(agent, AGENT_NAMES, f"{where}.agent")
        if "auto_artifact_threshold" in agent:
            _add(own, {"max_inline_bytes": agent.pop("auto_artifact_threshold")}, f"{where}.agent")
    rules = own.get("tool_fields")
    if isinstance(rules, dict):
        place = f"{where}.tool_fields"
        own["tool_fields"] = {tool: _rules(several, f"{place}.{tool}") for tool, several in rules.items()}
    return own


def _rules(several: object, where: str) -> object:
    if not isinstance(several, list):
        return several
    return [
        _renamed(rule, RULE_NAMES, f"{where}.{number}") if isinstance(rule, dict) else rule
        for number, rule in enumerate(several)
    ]


def _detection(table: Mapping[str, object], where: str) -> dict[str, object]:
    """Return ``binary_detection`` as settings of a policy. Its ``signatures`` take the place of those of the kit."""
    for key in table.keys() - {*DETECTION_NAMES, "signatures"}:
        raise UsageError(f"{where}.{key}: unknown")
    own = {DETECTION_NAMES[key]: value for key, value in table.items() if key in DETECTION_NAMES}
    signatures = table.get("signatures")
    if isinstance(signatures, dict):
        place = f"{where}.signatures"
        own["signatures"] = [_signature(start, kind, place) for start, kind in signatures.items()]
        own["known_signatures"] = False
    elif signatures is not None:
        raise UsageError(f'{where}.signatures: must be a table, such as JVBERi = ["pdf", "application/pdf"]')
    return own


def _signature(start: str, kind: object, where: str) -> dict[str, object]:
    """Return the signature of a file whose base64 begins with ``start``: the bytes that it has whole."""
    if not isinstance(kind, list | tuple) or len(kind) != 2:
        raise UsageError(f'{where}.{start}: must be an extension and a type, such as ["pdf", "application/pdf"]')
    whole = len(start) * 6 // 8
    try:
        magic = base64.b64decode(start + "A" * (-len(start) % 4), validate=True)[:whole]
    except (binascii.Error, ValueError):
        raise UsageError(f"{where}.{start}: is not the beginning of base64") from None
    return {"magic": magic.hex(), "mime_type": kind[1]}


def _renamed(table: Mapping[str, object], names: Mapping[str, str], where: str) -> dict[str, object]:
    own = {key: value for key, value in table.items() if key not in names}
    for key in table.keys() & names.keys():
        _add(own, {names[key]: table[key]}, where, f" ({key})")
    return own


def _add(own: dict[str, object], more: Mapping[str, object], where: str, other: str = "") -> None:
    for key, value in more.items():
        if key in own and own[key] != _NO_LIMIT:
            raise UsageError(f"{where}: {key} is given under two names{other}; give one of them")
        own.setdefault(key, value)
