"""Reading a manifest leniently, and comparing it with the running app. No I/O."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..binary.detect import MAX_DEPTH
from ..errors import ProtocolError
from ..protocol.messages import PROTOCOL_VERSION
from ..protocol.strict_json import decode_json, is_deeper
from .headers import one_line

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..protocol.declarations import Capability, Manifest

__all__ = ["MAX_CAPABILITIES", "missing_capabilities", "read_manifest"]

#: Largest number of capabilities that are read (docs/protocol.md 7.2).
MAX_CAPABILITIES = 1000
_LISTED = 5  # warnings of one kind, and names in a warning, before the rest is only counted
_MAJOR = re.compile(r"\s*v?([0-9]{1,9})(?:\.[0-9.]*)?\s*(?:[-+].*)?", re.IGNORECASE)

_M = TypeVar("_M", bound="BaseModel")


def read_manifest(body: bytes) -> tuple[Manifest, list[str]]:
    """Return the manifest in ``body``, and warnings about the parts that cannot be read and are left out.

    Raises :class:`~transports.errors.ProtocolError` if ``body`` is not a manifest at all.
    """
    from ..protocol.declarations import AppInfo, Manifest  # late, as it loads pydantic

    document = decode_json(body.removeprefix(codecs.BOM_UTF8))
    if not isinstance(document, dict):
        raise ProtocolError(
            f"it is JSON but no object: it begins with {one_line(body[:40].decode('utf-8', 'replace'), 40)!r}"
        )
    if not document.keys() & {"abp", "app", "capabilities"}:
        raise ProtocolError("it is a JSON object, but has none of abp, app and capabilities")
    warnings: list[str] = []
    manifest = _one(Manifest, {"abp": document.get("abp")}, "its abp version", warnings) or Manifest()
    if not warnings:
        warnings += _version_warnings(manifest.abp)
    app = _one(AppInfo, document.get("app") or {}, "its app", warnings) or AppInfo()
    listed = document.get("capabilities")
    if not isinstance(listed, list):
        warnings.append("the manifest has no list of capabilities")
        listed = []
    if len(listed) > MAX_CAPABILITIES:
        warnings.append(f"the manifest lists {len(listed)} capabilities; the first {MAX_CAPABILITIES} are taken")
    capabilities = _capabilities(listed[:MAX_CAPABILITIES], warnings)
    return manifest.model_copy(update={"app": app, "capabilities": capabilities}), warnings


def _one(model: type[_M], value: object, what: str, warnings: list[str]) -> _M | None:
    from ..protocol.declarations import parse

    try:
        return parse(model, value, what)
    except ProtocolError as error:
        warnings.append(f"the manifest: {one_line(error.message, 300)}")
        return None


def _version_warnings(version: str) -> list[str]:
    """Return a warning unless the major version is the same as ours or lower."""
    theirs, ours = _MAJOR.fullmatch(version), _MAJOR.fullmatch(PROTOCOL_VERSION)
    if theirs is None:
        display_version = one_line(version, 40)
        if display_version:
            return [f"the manifest's ABP version {display_version!r} cannot be read"]
        return ["the manifest names no ABP version"]
    if ours is not None and int(theirs[1]) > int(ours[1]):
        return [
            f"the manifest is for ABP {one_line(version, 40)}, newer than {PROTOCOL_VERSION}; it is tried all the same"
        ]
    return []


def _capabilities(listed: Iterable[object], warnings: list[str]) -> list[Capability]:
    from ..protocol.declarations import Capability, parse

    taken: dict[str, Capability] = {}
    bad: list[str] = []
    for number, item in enumerate(listed):
        try:
            if is_deeper(item, MAX_DEPTH):
                raise ProtocolError(f"it is nested deeper than {MAX_DEPTH} levels")
            capability = parse(Capability, item, "it")
            if not capability.name.strip():
                raise ProtocolError("it has no name")
            if capability.name in taken:
                raise ProtocolError(f"there is a {one_line(capability.name, 60)!r} already")
        except ProtocolError as error:
            bad.append(f"capability {number} of the manifest is left out: {one_line(error.message, 300)}")
        else:
            taken[capability.name] = capability
    warnings += bad[:_LISTED]
    if len(bad) > _LISTED:
        warnings.append(f"{len(bad) - _LISTED} more capabilities of the manifest are left out")
    return list(taken.values())


def missing_capabilities(declared: Iterable[Capability], run_time: Mapping[str, Capability]) -> list[str]:
    """Return a warning that names the capabilities that the manifest has and the running app lacks, or nothing."""
    names = [one_line(capability.name, 60) for capability in declared if capability.name not in run_time]
    if not names:
        return []
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return [f"the manifest names {', '.join(names[:_LISTED])}{more}, which the running app does not have"]
