"""What a caller gets: references and small data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..artifacts import ArtifactRef
from ..messages import Effect, JSONValue, encode_json

__all__ = ["Result"]


#: Effects that a summary does not tell: their files have lines already, or a warning says why there is none.
_FILES = ("clipboard", "download", "print")


@dataclass(frozen=True, slots=True)
class Result:
    """A routed answer.

    ``data`` is the answer as JSON values, each binary replaced by its reference as a ``dict``. ``artifacts`` maps
    places in it (``document``, ``pages.0.image``, ``""`` for the whole) to references, and is never empty: an answer
    without binaries is stored as JSON under ``""`` (seed 000). What the app produced beside its answer, a printed page
    or a download, stands under ``captured.0``, …, the first under ``document`` if the answer holds no binary.
    ``effects`` is what it did.
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

    def summary(self, *, max_chars: int = 1000) -> str:
        """What an agent reads, in the words of seed 000; at most ``max_chars`` characters."""
        lines: list[str] = []
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
