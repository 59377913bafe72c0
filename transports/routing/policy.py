"""Routing policies: what is recognised in an answer and what is done with it (docs/requirements.md R2-4.2). No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..binary.detect import MIN_GUESSED
from ..errors import UsageError

__all__ = ["FieldRule", "ResourcePolicy", "RoutingPolicy", "Step", "Transformer"]

#: A function of the caller, sync or async: it gets the capability's name and the answer, and returns another answer,
#: or ``None`` to leave the answer to the other layers.
Transformer: TypeAlias = Callable[[str, object], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a layer did, for people: ``layer`` as in :class:`RoutingPolicy`, the ``place`` in the answer, and
    ``what`` in words."""

    layer: Literal["custom", "fields", "typed", "abp", "heuristic", "size", "resources"]
    place: str
    what: str

    def as_dict(self) -> dict[str, object]:
        """Return the step as JSON."""
        return {"layer": self.layer, "place": self.place, "what": self.what}


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A field that holds a file, for apps and tools that do not declare it (docs/requirements.md R2-3.4).

    ``path`` is dotted; ``*`` stands for every item of a list or object, ``\\.`` for a dot in a key. ``summary`` and
    ``filename`` are templates: ``{name}`` is the field of that name beside the file. In ``summary``,
    ``{content_type}``, ``{mime_type}``, ``{size}`` (bytes), ``{size_human}``, ``{filename}`` and ``{artifact_id}``
    describe the stored file. ``encoding`` says how the text becomes bytes, unless an ``encoding`` beside the field says
    otherwise; base64 may be in lines. ``formats`` are the values of the field ``format`` beside it for which the rule
    holds, in any case of letters; without such a field, or if ``formats`` is empty, it holds.

    Content that does not fit goes on to the next rule and the next layer: another format, or markup (``<``) where
    base64 is expected. Anything else that is not base64 is an error.

    Raises :class:`~transports.errors.UsageError` for an empty path.
    """

    path: str
    mime_type: str | None = None
    summary: str = "Downloaded {content_type} ({size} bytes)"
    filename: str | None = None
    encoding: Literal["base64", "utf-8"] = "base64"
    formats: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.path:
            raise UsageError("a FieldRule needs a path, such as content or result.pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePolicy:
    """Policy for the resources of an MCP server (docs/requirements.md R2-4.2).

    A link in an answer is read at once if ``enabled`` and its ``size`` is below ``auto_read_if_size_under_bytes`` (0:
    never). Text of a resource with ``inline_text_if_under_chars`` characters or more becomes an artifact. With
    ``cache_reads_to_artifacts``, a resource that was read is not read again until the server reports a change
    (docs/requirements.md R2-7.3).

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
    """Settings of the layers of docs/requirements.md R2-4.1, which work in this order; the defaults are those of
    R2-4.2.

    * ``custom`` — ``transformer`` is called first. If it returns an answer, no other layer reads that one; only content
      in it (``bytes``, :class:`~transports.BinaryData`) is stored.
    * ``fields`` — rules by the name of a capability, ``*`` for all.
    * ``typed`` — content blocks of MCP; no setting.
    * ``abp`` — the forms of ABP; no setting.
    * ``heuristic`` — undeclared base64 of ``min_guessed_chars`` characters or more whose bytes have a known signature;
      off with ``heuristics=False``.
    * ``size`` — text of more than ``max_inline_chars`` characters gets a file of its own, and agents see a preview in
      its place; an answer that is one such text has its file as JSON. An answer of more than ``max_inline_bytes`` is
      stored as JSON as well. ``None`` means no limit.
    * ``resources`` — links to resources of an MCP server.

    The store decides how long and how much is kept: :class:`~transports.artifacts.Retention` (docs/requirements.md
    R2-7.1).

    Raises :class:`~transports.errors.UsageError` for a negative limit.
    """

    transformer: Transformer | None = None
    fields: Mapping[str, Sequence[FieldRule]] = field(default_factory=dict)
    heuristics: bool = True
    min_guessed_chars: int = MIN_GUESSED
    max_inline_chars: int | None = 10_000
    max_inline_bytes: int | None = 10_000
    #: Number of texts of one answer that get files of their own at most; the longest have precedence.
    max_texts: int = 20
    resources: ResourcePolicy = ResourcePolicy()

    def __post_init__(self) -> None:
        for name in ("min_guessed_chars", "max_inline_chars", "max_inline_bytes", "max_texts"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"RoutingPolicy: {name} must not be negative (it is {value})")

    def rules(self, capability: str) -> tuple[FieldRule, ...]:
        """Return the field rules for a capability: its own, then those for all."""
        return (*self.fields.get(capability, ()), *self.fields.get("*", ())) if self.fields else ()
