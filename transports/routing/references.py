"""The values that stand in a routed answer for its files, and the places of files that came beside it. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

from ..artifacts import ArtifactRef
from ..binary import BinaryData, Encoded
from ..binary.detect import Found, Place

__all__ = ["captured_places", "declared_text", "metadata_of", "reference_for", "reference_metadata"]


def reference_for(ref: ArtifactRef, found: Found) -> dict[str, object]:
    """Return the value that takes the place of stored content: its reference, with the other fields of its descriptor
    as ``metadata``."""
    extra = reference_metadata(found)
    return {**ref.as_dict(), "metadata": dict(extra)} if extra else ref.as_dict()


def reference_metadata(found: Found) -> Mapping[str, object]:
    """Return the fields of a descriptor that do not describe its content."""
    return found.binary.extra if isinstance(found.binary, BinaryData) else {}


def declared_text(found: Found) -> str | None:
    """Return the text of a descriptor whose content is UTF-8 text, or ``None`` (docs/protocol.md 9.3)."""
    content = found.binary.content if isinstance(found.binary, BinaryData) and found.layer == "abp" else None
    return str(content.text) if isinstance(content, Encoded) and content.encoding == "utf-8" else None


def metadata_of(data: object, found: Sequence[Found], refs: Collection[Place] = ()) -> Mapping[str, object]:
    """Return the fields of an answer that hold no content, which people call its metadata (docs/protocol.md 12.2).

    ``refs`` are the places of references that stood in the answer."""
    if () in refs:
        return {}
    if found and found[0].path == ():
        return found[0].binary.extra if isinstance(found[0].binary, BinaryData) else {}
    used = {item.path[0] for item in found} | {place[0] for place in refs}
    return {key: value for key, value in data.items() if str(key) not in used} if isinstance(data, dict) else {}


def captured_places(data: object, found: Sequence[Found]) -> Iterator[Place]:
    """Yield places for files that the app produced beside its answer (docs/protocol.md 12.6).

    The first is ``document`` if the answer has no file and no field of that name; then come ``captured.0``,
    ``captured.1`` and so on, without the places of files in the answer.
    """
    free = not found and not (isinstance(data, dict) and "document" in data)
    if free:
        yield ("document",)
    used = {item.path for item in found}
    yield from (place for n in count(1 if free else 0) if (place := ("captured", n)) not in used)
