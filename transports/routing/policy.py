"""What is done with an answer, as a value: the settings of seed 002 §4.2. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..binary.detect import MIN_GUESSED
from ..errors import UsageError

__all__ = ["FieldRule", "ResourcePolicy", "RoutingPolicy", "Step", "Transformer"]

#: Takes the capability and its answer, and gives another answer, or ``None`` to leave it to the other layers.
Transformer: TypeAlias = Callable[[str, object], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Step:
    """What one layer did: ``layer`` as in :class:`RoutingPolicy`, ``place`` in the answer, ``what`` in words."""

    layer: Literal["custom", "fields", "typed", "abp", "heuristic", "size", "resources"]
    place: str
    what: str

    def as_dict(self) -> dict[str, object]:
        """As JSON."""
        return {"layer": self.layer, "place": self.place, "what": self.what}


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One field that holds a file, for apps and tools that do not say so (seed 002 §3.4).

    ``path`` is dotted; ``*`` stands for every item of a list or object, ``\\.`` for a dot in a key. ``summary`` and
    ``filename`` are templates: ``{name}`` is the field beside it, and ``{content_type}``, ``{mime_type}``, ``{size}``
    (bytes), ``{size_human}``, ``{filename}`` and ``{artifact_id}`` are of what was stored. ``encoding`` is how the text
    becomes bytes, unless an ``encoding`` beside it says otherwise; base64 may stand in lines.
    """

    path: str
    mime_type: str | None = None
    summary: str = "Downloaded {content_type} ({size} bytes)"
    filename: str | None = None
    encoding: Literal["base64", "utf-8"] = "base64"

    def __post_init__(self) -> None:
        if not self.path:
            raise UsageError("a FieldRule needs a path, such as content or result.pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePolicy:
    """What is done with an MCP server's resources (seed 002 §4.2). A link in an answer is followed if ``enabled`` and
    its ``size`` is below ``auto_read_if_size_under_bytes`` (0: never). A resource's text of
    ``inline_text_if_under_chars`` or more becomes an artifact. With ``cache_reads_to_artifacts`` a resource that was
    read is not read again until the server says that it changed (§7.3).

    Raises :class:`~transports.errors.UsageError` for a negative limit.
    """

    enabled: bool = True
    auto_read_if_size_under_bytes: int = 0
    inline_text_if_under_chars: int = 10_000
    cache_reads_to_artifacts: bool = True

    def __post_init__(self) -> None:
        for name in ("auto_read_if_size_under_bytes", "inline_text_if_under_chars"):
            if getattr(self, name) < 0:
                raise UsageError(f"ResourcePolicy: {name} must not be negative (it is {getattr(self, name)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPolicy:
    """The layers of seed 002 §4.1, in its order; the defaults are those of §4.2. (How long and how much is kept is a
    matter of the store: :class:`~transports.artifacts.Retention` has the defaults of §7.1.)

    ``custom``: ``transformer`` is asked first; if it gives an answer, no other layer reads it, only content in it
    (``bytes``, :class:`~transports.BinaryData`) is stored. ``fields``: rules by the name of a capability, ``*``
    for any. ``typed``: content blocks of MCP. ``abp``: ABP's own forms. ``heuristic``: undeclared base64 from
    ``min_guessed_chars`` on whose bytes have a known signature (``heuristics=False``: not at all). ``size``: a text of
    more than ``max_inline_chars`` gets a file of its own, which agents see in its place, and so does an answer of more
    than ``max_inline_bytes`` as JSON (``None``: no limit). ``resources`` is for servers that have some.

    Raises :class:`~transports.errors.UsageError` for a negative limit.
    """

    transformer: Transformer | None = None
    fields: Mapping[str, Sequence[FieldRule]] = field(default_factory=dict)
    heuristics: bool = True
    min_guessed_chars: int = MIN_GUESSED
    max_inline_chars: int | None = 10_000
    max_inline_bytes: int | None = 10_000
    #: Most texts of one answer that get files of their own; the largest go first.
    max_texts: int = 20
    resources: ResourcePolicy = ResourcePolicy()

    def __post_init__(self) -> None:
        for name in ("min_guessed_chars", "max_inline_chars", "max_inline_bytes", "max_texts"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"RoutingPolicy: {name} must not be negative (it is {value})")

    def rules(self, capability: str) -> tuple[FieldRule, ...]:
        """The rules for one capability, its own first."""
        return (*self.fields.get(capability, ()), *self.fields.get("*", ())) if self.fields else ()
