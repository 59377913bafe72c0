"""What a caller gets: references and small data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from ..artifacts import ArtifactRef
from ..binary.detect import Place, field_of, replace
from ..errors import UsageError
from ..protocol.messages import Effect
from ..protocol.strict_json import JSONValue, encode_json
from .guard import clamp, json_size
from .policy import Step

__all__ = ["Result"]


#: Effects that a summary does not tell: their files have lines already, or a warning says why there is none.
_FILES = ("clipboard", "download", "print")
#: Bytes below which a view of an answer could not say where all of it is.
_LEAST = 1024


@dataclass(frozen=True, slots=True)
class Result:
    """A routed answer.

    ``data`` is the answer as JSON values, each binary replaced by its reference as a ``dict``. ``artifacts`` maps
    places in it (``document``, ``pages.0.image``, ``""`` for the whole) to references, and is never empty: an answer
    without binaries is stored as JSON under ``""`` (seed 000), and so is one that is large. A long text stays in
    ``data``, and is also a file under its place. What the app produced beside its answer, a printed page or a download,
    stands under ``captured.0``, …, the first under ``document`` if the answer holds no binary. ``effects`` is what it
    did; ``steps`` what each layer of the routing did.
    """

    capability: str
    data: JSONValue
    artifacts: Mapping[str, ArtifactRef]
    transport: str = ""
    duration_ms: float = 0.0
    warnings: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    #: ``data`` without its references: what people call metadata.
    metadata: Mapping[str, object] = field(default_factory=dict, repr=False)
    steps: tuple[Step, ...] = ()
    #: What configured fields say of their files.
    summaries: tuple[str, ...] = ()
    #: What agents see in the place of texts that have files of their own.
    texts: Mapping[Place, JSONValue] = field(default_factory=dict, repr=False)
    #: Which of the artifacts have their references in ``data``.
    held: frozenset[str] = field(default=frozenset(), repr=False)

    def as_dict(self) -> dict[str, object]:
        """The result document of the command line."""
        document: dict[str, object] = {
            "success": True,
            "capability": self.capability,
            "transport": self.transport,
            "data": self.data,
            "duration_ms": round(self.duration_ms, 1),
            "warnings": list(self.warnings),
            "artifacts": [{"field": place, **ref.as_dict()} for place, ref in self.artifacts.items()],
        }
        if self.effects:
            document["effects"] = [effect.as_dict() for effect in self.effects]
        return document

    def for_agent(self, *, max_bytes: int = 50_000) -> dict[str, JSONValue]:
        """What a model may be given: JSON of at most ``max_bytes`` as compact UTF-8 (seed 002 §4.4).

        ``data`` with a reference and a preview in the place of each long text; ``artifacts`` that do not stand in it;
        ``warnings`` and ``effects`` if there are any. If that is too large, values are cut (:mod:`.guard`) and
        ``truncated`` says how large the answer is and where all of it is. Raises
        :class:`~transports.errors.UsageError` for a limit below 1,024 bytes.
        """
        if max_bytes < _LEAST:
            raise UsageError(f"max_bytes must be at least {_LEAST} (it is {max_bytes})")
        body = self._view()
        if json_size(body) <= max_bytes:
            return body
        head: dict[str, JSONValue] = {"truncated": self._whole(max_bytes // 2)}
        cut = clamp(body, max_bytes - json_size(head) + 1)  # two objects become one: a comma for two braces
        return {**head, **cast(dict[str, JSONValue], cut)}

    def _view(self) -> dict[str, JSONValue]:
        view: dict[str, object] = {"data": replace(self.data, self.texts)}
        shown = self.held | {field_of(place) for place in self.texts}
        if beside := {place: ref.as_dict() for place, ref in self.artifacts.items() if place not in shown}:
            view["artifacts"] = beside
        if self.warnings:
            view["warnings"] = list(self.warnings)
        if self.effects:
            view["effects"] = [effect.as_dict() for effect in self.effects]
        return cast(dict[str, JSONValue], view)

    def _whole(self, room: int) -> JSONValue:
        """How much there is, and where it is. A path that leaves no room for anything else is left out."""
        about: dict[str, JSONValue] = {"bytes": json_size(self.data)}
        ref = self.artifacts.get("") if "" not in self.held else None
        if ref is None or ref.source.get("truncated"):
            return about | {"note": "values were cut; the whole answer was not stored: ask for a part of it"}
        about |= {"note": "values were cut; the whole answer is in this file", "id": ref.id, "uri": ref.uri}
        full = about | {"path": str(ref.path) if ref.path else None}
        return full if json_size(full) <= room else about

    def summary(self, *, max_chars: int = 1000) -> str:
        """What an agent reads, in the words of seed 000; at most ``max_chars`` characters."""
        lines = list(self.summaries)
        for place, ref in self.artifacts.items():
            where = ref.path or ref.uri
            if place == "" and ref.mime_type == "application/json":
                lines += [f"Output saved to file: {where}", f"Size: {len(encode_json(self.data).decode())} characters"]
            else:
                lines += [f"File saved: {where}", f"Type: {ref.mime_type}", f"Size: {ref.size_bytes} bytes"]
        if self.metadata:
            lines.append(f"Metadata: {encode_json(self.metadata).decode()}")
        lines += [f"Effect: {_told(effect)}" for effect in self.effects if effect.kind not in _FILES]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        text = "\n".join(lines)
        return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _told(effect: Effect) -> str:
    """One line: the kind and its details, cut short."""
    said = ", ".join(f"{key} {value}" for key, value in effect.detail.items()).replace("\n", " ")
    return f"{effect.kind} ({said if len(said) <= 80 else said[:79] + '…'})" if said else effect.kind
