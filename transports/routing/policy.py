"""Routing policies: what is recognised in an answer and what is done with it (docs/requirements.md R2-4.2). No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from ..binary.detect import MIN_GUESSED, Heuristics, Signature
from ..errors import UsageError
from .events import TransformContext
from .guard import MAX_BYTES, MIN_AGENT_BYTES, TRUNCATION_SUFFIX
from .paths import check_path

__all__ = ["AgentLimits", "FieldRule", "ResourcePolicy", "RoutingPolicy", "Step", "Transformer"]

#: For settings files (:mod:`.config`), which may not misspell a setting.
_STRICT = {"extra": "forbid"}
_MAX_SUFFIX = 200  # characters

#: A function of the caller, sync or async: it gets the capability's name, the answer and a :class:`.TransformContext`,
#: and returns another answer, or ``None`` to leave the answer to the other layers.
Transformer: TypeAlias = Callable[[str, object, TransformContext], object | Awaitable[object]]


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

    ``path`` is dotted (``pages.*.image``: ``*`` stands for every item of a list or object, ``\\.`` for a dot in a key),
    or a JSONPath of RFC 9535 (``$.pages[?@.kind == 'scan'].image``), which begins with ``$``. ``summary`` and
    ``filename`` are templates: ``{name}`` is the field of that name beside the file. In ``summary``,
    ``{content_type}``, ``{mime_type}``, ``{size}`` (bytes), ``{size_human}``, ``{filename}`` and ``{artifact_id}``
    describe the stored file. ``encoding`` says how the text becomes bytes, unless an ``encoding`` beside the field says
    otherwise; base64 may be in lines. ``formats`` are the values of the field ``format`` beside it for which the rule
    holds, in any case of letters; without such a field, or if ``formats`` is empty, it holds.

    Content that does not fit goes on to the next rule and the next layer: another format, or markup (``<``) where
    base64 is expected. Anything else that is not base64 is an error.

    Raises :class:`~transports.errors.UsageError` for a path that is not valid or can match nothing.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    path: str
    mime_type: str | None = None
    summary: str = "Downloaded {content_type} ({size} bytes)"
    filename: str | None = None
    encoding: Literal["base64", "utf-8"] = "base64"
    formats: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.path:
            raise UsageError("a FieldRule needs a path, such as content or result.pdf")
        check_path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePolicy:
    """Policy for the resources of an MCP server (docs/requirements.md R2-4.2).

    A link in an answer is read at once if ``enabled`` and its ``size`` is below ``auto_read_if_size_under_bytes`` (0:
    never). Text of a resource with ``inline_text_if_under_chars`` characters or more becomes an artifact. With
    ``cache_reads_to_artifacts``, a resource that was read is not read again until the server reports a change
    (docs/requirements.md R2-7.3).

    Raises :class:`~transports.errors.UsageError` for a negative limit.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    enabled: bool = True
    auto_read_if_size_under_bytes: int = 0
    inline_text_if_under_chars: int = 10_000
    cache_reads_to_artifacts: bool = True

    def __post_init__(self) -> None:
        for name in ("auto_read_if_size_under_bytes", "inline_text_if_under_chars"):
            if getattr(self, name) < 0:
                raise UsageError(f"ResourcePolicy: {name} must not be negative (it is {getattr(self, name)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """Limits for what an agent reads of an answer: the last guard (docs/requirements.md R2-4.4).

    ``max_bytes`` is for the whole, as compact JSON in UTF-8, and ``max_field_chars`` for each text in it; ``None``
    means no limit besides :attr:`RoutingPolicy.max_inline_chars`, above which a text is only a preview.
    ``truncation_suffix`` stands at the end of a text that was cut: ``{truncated_chars}`` is the number of characters
    that are missing.

    Raises :class:`~transports.errors.UsageError` for limits below 1,024 bytes or 1 character, and for a suffix of more
    than 200 characters.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    max_bytes: int = MAX_BYTES
    max_field_chars: int | None = None
    truncation_suffix: str = TRUNCATION_SUFFIX

    def __post_init__(self) -> None:
        if self.max_bytes < MIN_AGENT_BYTES:
            raise UsageError(f"AgentLimits: max_bytes must be at least {MIN_AGENT_BYTES} (it is {self.max_bytes})")
        if self.max_field_chars is not None and self.max_field_chars < 1:
            raise UsageError(f"AgentLimits: max_field_chars must be at least 1 (it is {self.max_field_chars})")
        if len(self.truncation_suffix) > _MAX_SUFFIX:
            raise UsageError(f"AgentLimits: truncation_suffix must have at most {_MAX_SUFFIX} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPolicy:
    """Settings of the layers of docs/requirements.md R2-4.1, which work in this order; the defaults are those of
    R2-4.2.

    * ``custom`` — ``transformer`` is called first. If it returns an answer, no other layer reads that one; only content
      in it (``bytes``, :class:`~transports.BinaryData`) is stored. References of what it stored itself may stand in it.
    * ``fields`` — ``tool_fields``: rules by the name of a capability, ``*`` for all.
    * ``typed`` — content blocks of MCP; no setting.
    * ``abp`` — the forms of ABP; no setting.
    * ``heuristic`` — undeclared base64 of ``min_guessed_chars`` characters or more whose bytes have a known signature,
      one of the policy's ``signatures`` among them, and are ``max_decode_bytes`` at most (``None``: any number); with
      ``require_magic_bytes=False`` also base64 without a signature. Off with ``heuristics=False``.
    * ``size`` — text of more than ``max_inline_chars`` characters gets a file of its own, and agents see a preview in
      its place; an answer that is one such text has its file as JSON. An answer of more than ``max_inline_bytes`` is
      stored as JSON as well. ``None`` means no limit.
    * ``resources`` — links to resources of an MCP server.

    ``default_summary_template`` makes a line of the summary for each file without a rule, with the placeholders of
    :class:`FieldRule`; without it the file's own lines stand alone. ``agent`` limits what an agent reads in the end.

    The store decides how long and how much is kept: :class:`~transports.artifacts.Retention` (docs/requirements.md
    R2-7.1).

    Raises :class:`~transports.errors.UsageError` for a negative limit.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    transformer: Transformer | None = None
    tool_fields: Mapping[str, Sequence[FieldRule]] = field(default_factory=dict)
    heuristics: bool = True
    min_guessed_chars: int = MIN_GUESSED
    max_decode_bytes: int | None = None
    require_magic_bytes: bool = True
    signatures: Sequence[Signature] = ()
    max_inline_chars: int | None = 10_000
    max_inline_bytes: int | None = 10_000
    #: Number of texts of one answer that get files of their own at most; the longest have precedence.
    max_texts: int = 20
    resources: ResourcePolicy = ResourcePolicy()
    default_summary_template: str | None = None
    agent: AgentLimits = AgentLimits()

    def __post_init__(self) -> None:
        for name in ("min_guessed_chars", "max_decode_bytes", "max_inline_chars", "max_inline_bytes", "max_texts"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"RoutingPolicy: {name} must not be negative (it is {value})")

    def rules(self, capability: str) -> tuple[FieldRule, ...]:
        """Return the field rules for a capability: its own, then those for all."""
        rules = self.tool_fields
        return (*rules.get(capability, ()), *rules.get("*", ())) if rules else ()

    @property
    def search(self) -> Heuristics | None:
        """The settings of the search for files that nothing declares; ``None`` if it is off."""
        if not self.heuristics:
            return None
        return Heuristics(
            min_chars=self.min_guessed_chars,
            signatures=self.signatures,
            require_magic_bytes=self.require_magic_bytes,
            max_decode_bytes=self.max_decode_bytes,
        )
