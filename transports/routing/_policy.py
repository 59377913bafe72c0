"""Routing policies (docs/requirements.md R2-4.2): rules for files in answers, limits for agents, events. No I/O."""

from __future__ import annotations

import base64
import binascii
import difflib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeAlias, cast

from .._internal.arguments import validate_fields
from .._internal.plugins import installed_plugins, load_plugin
from ..artifacts._base import ArtifactStore
from ..artifacts._ref import Scope
from ..errors import UsageError
from ..protocol._find_content import Place
from ..protocol._heuristics import MIN_GUESSED, Heuristics, Signature
from ..protocol._media import type_of_extension
from ._guard import MAX_BYTES, MAX_FIELD_CHARS, MIN_AGENT_BYTES, TRUNCATION_SUFFIX

if TYPE_CHECKING:
    from pydantic import TypeAdapter

#: Names of settings in docs/requirements.md R2-4.2, each with the name in :class:`.RoutingPolicy` or one of its parts.
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
#: For pydantic, which checks settings files: a misspelt setting is an error.
_STRICT = {"extra": "forbid"}
_DOTTED = re.compile(r"(?:[^.\\]|\\.)+(?:\.(?:[^.\\]|\\.)+)*", re.DOTALL)
_STEP = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ObservationClamped:
    """Cut of an agent's view of an answer to its limit (docs/requirements.md R2-4.4).

    ``call`` is the id of the call, ``""`` outside a session. ``original_bytes`` is the size of the whole view,
    ``clamped_bytes`` that of the cut one, both in UTF-8.
    """

    call: str
    capability: str
    original_bytes: int
    clamped_bytes: int


@dataclass(frozen=True, slots=True)
class CustomEvent:
    """Event of a transformer: its ``name`` and ``data``, any JSON value."""

    call: str
    capability: str
    name: str
    data: object = None


RoutingEvent: TypeAlias = ObservationClamped | CustomEvent
#: A plain function that receives the events of the routing. It must not block.
OnRoutingEvent: TypeAlias = Callable[[RoutingEvent], object]


@dataclass(frozen=True, slots=True)
class TransformContext:
    """Third argument of a transformer: its call, and the store to keep content in.

    ``call`` is the id of the call, ``""`` outside a session. References that ``store`` returns may stand anywhere in
    the transformer's answer: they become artifacts of the result. ``artifacts`` is the same store under the name that
    tools of hosts know (docs/requirements.md R2-3.6).
    """

    capability: str
    call: str
    store: ArtifactStore
    _on_event: OnRoutingEvent | None = field(default=None, repr=False)

    @property
    def artifacts(self) -> ArtifactStore:
        """The store of the call, as :attr:`store`."""
        return self.store

    @property
    def scope(self) -> Scope:
        """Scope of the store: the tenant, user, session and trace of this call, as far as they are set."""
        return self.store.scope

    def emit(self, name: str, data: object = None) -> None:
        """Send a :class:`CustomEvent` to the listeners of the session, or to the router's ``on_event``."""
        if self._on_event is not None:
            self._on_event(CustomEvent(self.call, self.capability, name, data))


def check_path(path: str) -> None:
    """Raise :class:`~transports.errors.UsageError` if a rule's path is neither dotted nor a JSONPath."""
    if path.startswith("$"):
        from ._json_paths import compile_json_path  # late: its library loads longer than all of routing

        compile_json_path(path)
    elif not _DOTTED.fullmatch(path):
        raise UsageError(
            f"{path!r} is not a path of a field, such as content, pages.*.image or $.pages[*].image; "
            "a dot or backslash in a key is written \\. or \\\\"
        )


class PathMatch(NamedTuple):
    """Match of a path in an answer. ``siblings`` are the fields of the innermost object around the match."""

    place: Place
    value: object
    siblings: Mapping[str, object]


def walk_path(tree: object, path: str, start: Place) -> Iterator[PathMatch]:
    """Yield the matches of a rule's path, which begins at ``start``. Siblings are looked for below ``start`` only."""
    for step in start:
        tree = tree[step]  # type: ignore[index]  # a place of the tree
    if path.startswith("$"):
        from ._json_paths import find_json_path  # late, as above

        for place in find_json_path(tree, path):
            yield _match_at(tree, place, start)
    else:
        yield from _walk(tree, _STEP.findall(path), start, {})


def _match_at(tree: object, place: Place, start: Place) -> PathMatch:
    value = tree
    siblings: Mapping[str, object] = {}
    for step in place:
        if isinstance(value, dict):
            siblings = value
        value = value[step]  # type: ignore[index]  # the search has found it there
    return PathMatch((*start, *place), value, siblings)


def _walk(node: object, steps: Sequence[str], place: Place, siblings: Mapping[str, object]) -> Iterator[PathMatch]:
    if not steps:
        yield PathMatch(place, node, siblings)
        return

    step, rest = steps[0], steps[1:]
    if isinstance(node, dict):
        names = list(node)
        if step != "*":
            # A dot or backslash in a key is written after a backslash.
            names = [re.sub(r"\\(.)", r"\1", step)]
        for name in names:
            if name in node:
                yield from _walk(node[name], rest, (*place, str(name)), node)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if step in ("*", str(index)):
                yield from _walk(value, rest, (*place, index), siblings)


#: A function of the caller, sync or async: it receives the capability's name, the answer and a
#: :class:`.TransformContext`. It returns another answer, or ``None`` to leave the answer to the other layers.
Transformer: TypeAlias = Callable[[str, object, TransformContext], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Step:
    """Log entry of a layer, for people: ``layer`` as in :class:`RoutingPolicy`, the ``place`` in the answer, and
    ``what`` it did, in words."""

    layer: Literal["custom", "fields", "typed", "abp", "heuristic", "size", "resources"]
    place: str
    what: str

    def as_dict(self) -> dict[str, object]:
        """Return the step as JSON."""
        return {"layer": self.layer, "place": self.place, "what": self.what}


@dataclass(frozen=True, slots=True)
class FieldRule:
    """Rule for a field that holds a file without declaring it (docs/requirements.md R2-3.4).

    ``path`` is dotted (``pages.*.image``: ``*`` stands for every item of a list or object, ``\\.`` for a dot in a key),
    or a JSONPath of RFC 9535 (``$.pages[?@.kind == 'scan'].image``), which begins with ``$``. ``summary`` and
    ``filename`` are templates: ``{name}`` is the field of that name beside the file. In ``summary``,
    ``{content_type}``, ``{mime_type}``, ``{size}`` (bytes), ``{size_human}``, ``{filename}`` and ``{artifact_id}``
    describe the stored file. ``encoding`` is that of the text, unless a field ``encoding`` beside it has another;
    base64 may be in lines. ``formats`` are the values of the field ``format`` beside it for which the rule applies, in
    any case of letters; without such a field, or with empty ``formats``, the rule applies.

    Content that does not fit is left to the next rule and the next layer: another format, or markup (``<``) where
    base64 is expected. Any other text that is not base64 is an error.

    ``content_type`` is the word for ``{content_type}`` (``pdf``, ``image``; by default the extension of the file). If
    it is the extension of a known type and there is no ``mime_type``, it is the type as well.

    Raises :class:`~transports.errors.UsageError` for a path that is not valid.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    path: str
    mime_type: str | None = None
    summary: str = "Downloaded {content_type} ({size} bytes)"
    filename: str | None = None
    encoding: Literal["base64", "utf-8"] = "base64"
    formats: Sequence[str] = ()
    content_type: str | None = None

    def __post_init__(self) -> None:
        if not self.path:
            raise UsageError("a FieldRule needs a path, such as content or result.pdf")
        check_path(self.path)

    @property
    def declared_type(self) -> str | None:
        """The MIME type that the rule gives its files, if it does."""
        if self.mime_type is None and self.content_type is not None:
            return type_of_extension(self.content_type)
        return self.mime_type


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
    """Limits of an agent's view of an answer: the last guard (docs/requirements.md R2-4.4).

    ``max_bytes`` is for the whole view, as compact JSON in UTF-8, and ``max_field_chars`` for each text in it, such as
    one of many that got no file and preview by :attr:`RoutingPolicy.max_inline_chars`; ``None`` means no limit.
    ``truncation_suffix`` ends each text that was cut: ``{truncated_chars}`` is the number of missing characters.
    With ``preserve_structure=False``, ``data`` that is too large is the beginning of its JSON, as a text.

    Raises :class:`~transports.errors.UsageError` for limits below 1,024 bytes or 1 character, and for a suffix of more
    than 200 characters.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    max_bytes: int = MAX_BYTES
    max_field_chars: int | None = MAX_FIELD_CHARS
    truncation_suffix: str = TRUNCATION_SUFFIX
    preserve_structure: bool = True

    def __post_init__(self) -> None:
        if self.max_bytes < MIN_AGENT_BYTES:
            raise UsageError(f"AgentLimits: max_bytes must be at least {MIN_AGENT_BYTES} (it is {self.max_bytes})")
        if self.max_field_chars is not None and self.max_field_chars < 1:
            raise UsageError(f"AgentLimits: max_field_chars must be at least 1 (it is {self.max_field_chars})")
        if len(self.truncation_suffix) > 200:
            raise UsageError("AgentLimits: truncation_suffix must have at most 200 characters")


@validate_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPolicy:
    """Settings of the routing layers (docs/requirements.md R2-4.1, defaults of R2-4.2), which work in this order:

    * ``custom`` — ``transformer`` is called first. An answer that it returns skips the other layers; only its content
      (``bytes``, :class:`~transports.BinaryData`) is stored. It may hold references of files that it stored itself.
    * ``fields`` — ``tool_fields``: rules by the name of a capability, ``*`` for all.
    * ``typed`` — content blocks of MCP; no setting.
    * ``abp`` — the forms of ABP; no setting.
    * ``heuristic`` — undeclared base64 of ``min_guessed_chars`` characters or more and ``max_decode_bytes`` at most
      (``None``: no limit) whose bytes have a known signature or one of ``signatures``, or only one of these with
      ``known_signatures=False``; with ``require_magic_bytes=False`` also base64 without a signature. Off with
      ``heuristics=False``.
    * ``size`` — a text of more than ``max_inline_chars`` characters gets a file of its own, and agents see a preview in
      its place; the file of an answer that is one such text is JSON. An answer of more than ``max_inline_bytes`` is
      stored as JSON as well. ``None`` means no limit.
    * ``resources`` — links to resources of an MCP server.

    Without ``inline_data``, small data is a reference, too: ``data`` of an answer without files is the reference of its
    JSON file (:meth:`.Result.by_reference`).

    ``default_summary_template`` makes a line of the summary for each file without a rule, with the placeholders of
    :class:`FieldRule`; without it only the file's own lines are shown. ``agent`` limits an agent's view.

    Limits on stored files are set in the store: :class:`~transports.artifacts.Retention` (docs/requirements.md R2-7.1).

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
    known_signatures: bool = True
    max_inline_chars: int | None = 10_000
    max_inline_bytes: int | None = 10_000
    #: Limit of texts of one answer that get files of their own; the longest have precedence.
    max_texts: int = 20
    resources: ResourcePolicy = ResourcePolicy()
    default_summary_template: str | None = None
    inline_data: bool = True
    agent: AgentLimits = AgentLimits()

    def __post_init__(self) -> None:
        for name in ("min_guessed_chars", "max_decode_bytes", "max_inline_chars", "max_inline_bytes", "max_texts"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"RoutingPolicy: {name} must not be negative (it is {value})")

    def rules(self, capability: str) -> tuple[FieldRule, ...]:
        """Return the field rules for a capability: its own, then the rules for all."""
        rules = self.tool_fields
        if not rules:
            return ()
        return (*rules.get(capability, ()), *rules.get("*", ()))

    @property
    def search(self) -> Heuristics | None:
        """Settings of the search for undeclared files; ``None`` if it is off."""
        if not self.heuristics:
            return None
        return Heuristics(
            min_chars=self.min_guessed_chars,
            signatures=self.signatures,
            known_signatures=self.known_signatures,
            require_magic_bytes=self.require_magic_bytes,
            max_decode_bytes=self.max_decode_bytes,
        )


GROUP = "abp.presets"

#: The default policy. Apps that speak ABP declare their content.
ABP = RoutingPolicy()

#: Tableau's MCP server: PDFs as base64 in undeclared fields (docs/requirements.md R2-1.1, R2-B).
TABLEAU = RoutingPolicy(
    tool_fields={
        "download_workbook": (
            FieldRule(
                "content",
                "application/pdf",
                "Downloaded workbook '{name}' as PDF ({size_human}). Artifact: {artifact_id}",
                "{name}.pdf",
                formats=("pdf",),
            ),
        ),
        "get_view_as_pdf": (
            FieldRule(
                "pdf_data",
                "application/pdf",
                "Downloaded view '{view_name}' as PDF ({size_human}). Artifact: {artifact_id}",
                "{view_name}.pdf",
            ),
        ),
    }
)

_FILE = FieldRule("content", summary="Downloaded {path} ({size_human}). Artifact: {artifact_id}", filename="{name}")
_BLOB = FieldRule("content", summary="Downloaded blob {sha} ({size_human}). Artifact: {artifact_id}")

#: GitHub: contents of files and Git blobs, as base64 in lines of 60 characters with ``encoding: "base64"`` beside it
#: (REST "Get repository content", "Get a blob"); its MCP server's embedded resources need no rule.
GITHUB = RoutingPolicy(
    tool_fields={
        "get_file_contents": (_FILE,),
        "get_content": (_FILE,),
        "get_blob": (_BLOB,),
    }
)

#: Presets of this kit by name. A server calls itself ``tableau-mcp`` or ``github-mcp-server``.
_BUILT_IN = {"abp": ABP, "github": GITHUB, "tableau": TABLEAU}


def preset(server: str) -> RoutingPolicy:
    """Return the preset for a server by the server's own name; :data:`ABP` if there is none.

    A preset applies to servers with its name as a word of theirs. Presets of plug-ins have precedence. Raises
    :class:`~transports.errors.UsageError` for a faulty plug-in.
    """
    words = words_of(server)
    for name in (*installed_plugins(GROUP), *_BUILT_IN):
        if name.lower() in words:
            return named_preset(name)
    return ABP


def named_preset(name: str) -> RoutingPolicy:
    """Return the preset called ``name``: that of a plug-in, or ``abp``, ``github``, ``tableau``.

    Raises :class:`~transports.errors.UsageError` for an unknown name, which lists the presets, and for a faulty
    plug-in."""
    plugin = load_plugin(GROUP, name, "preset")
    if plugin is None:
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        names = sorted({*_BUILT_IN, *installed_plugins(GROUP)})
        raise UsageError(f"no preset is called {name!r}; there are {', '.join(names)}")
    if not isinstance(plugin.value, RoutingPolicy):
        raise UsageError(
            f"{plugin.label} is a {type(plugin.value).__name__}, not a transports.RoutingPolicy; please report it"
        )
    return plugin.value


def words_of(server: str) -> frozenset[str]:
    return frozenset((server.lower(), *re.split(r"[^a-z0-9]+", server.lower())))


#: Settings that are tables: a table in the file changes only the keys that it has.
_NESTED = ("resources", "agent")
_PRESET = "preset"


@dataclass(frozen=True, slots=True)
class RoutingConfig:
    """Routing settings for all apps (``general``), and for ``servers`` by a word of their own name; ``options`` have
    precedence over both.

    Keys are those of :class:`.RoutingPolicy` except ``transformer``, or their names in docs/requirements.md R2-4.2, and
    ``preset``. :meth:`parse` checks them.
    """

    general: Mapping[str, object] = field(default_factory=dict)
    servers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def parse(cls, table: object, where: str) -> RoutingConfig:
        """Return the checked settings of the table ``[routing]``. ``where`` names it in errors: ``abp.toml: routing``.

        Raises :class:`~transports.errors.UsageError`, which names the key at fault.
        """
        general = dict(_as_table(table, where))
        servers_key = f"{where}.servers"
        servers: dict[str, Mapping[str, object]] = {}
        for name, settings in _as_table(general.pop("servers", {}), servers_key).items():
            servers[name] = _as_table(settings, f"{servers_key}.{name}")

        _check_settings(general, where)
        for name, settings in servers.items():
            _check_settings(settings, f"{servers_key}.{name}")
        return cls(general, servers)

    def policy(self, server: str, *, presets: bool) -> RoutingPolicy:
        """Return the policy for a server by the server's own name.

        Settings of the server override those for all, and ``options`` override both. All of them override the preset
        that they name or, without one and with ``presets``, the preset for servers of this name (:func:`.preset`).
        """
        words = words_of(server)
        server_settings = next((settings for name, settings in self.servers.items() if name.lower() in words), {})
        by_precedence = (self.options, server_settings, self.general)

        preset_name = next((settings[_PRESET] for settings in by_precedence if _PRESET in settings), None)
        policy = ABP
        if preset_name:
            policy = named_preset(str(preset_name))
        elif presets:
            policy = preset(server)
        for settings in reversed(by_precedence):
            policy = _with_settings(policy, settings, "")
        return policy

    def with_options(self, options: Mapping[str, object], where: str) -> RoutingConfig:
        """Return these settings with checked ``options``, which have precedence. ``where`` names them in errors.

        Raises :class:`~transports.errors.UsageError`, which names the key at fault.
        """
        _check_settings(options, where)
        return replace(self, options=options)


def _as_table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be a table, [{where.rpartition(': ')[2]}]")
    return cast(Mapping[str, object], value)


def _check_settings(settings: Mapping[str, object], where: str) -> None:
    if _PRESET in settings:
        try:
            named_preset(str(settings[_PRESET]))
        except UsageError as error:
            raise UsageError(f"{where}.{_PRESET}: {error.message}") from None
    _with_settings(ABP, settings, where)


def _with_settings(base: RoutingPolicy, settings: Mapping[str, object], where: str) -> RoutingPolicy:
    """Return ``base``, changed by settings. If both have rules for a tool, the rules of ``settings`` count."""
    table = _rename_settings({key: value for key, value in settings.items() if key != _PRESET}, where)
    if not table:
        return base

    policy = _validate(table, where)
    changes = {name: getattr(policy, name) for name in table}
    # A nested table changes only the keys that it has.
    for name in table.keys() & {*_NESTED}:
        nested_table = cast(dict[str, object], table[name])
        nested_changes = {key: getattr(changes[name], key) for key in nested_table}
        changes[name] = replace(getattr(base, name), **nested_changes)
    if "tool_fields" in changes:
        changes["tool_fields"] = {**base.tool_fields, **changes["tool_fields"]}
    return replace(base, **changes)


def _validate(table: Mapping[str, object], where: str) -> RoutingPolicy:
    """Check a table whose keys are names of this kit, and return its policy, with defaults for missing settings."""
    names = {item.name for item in fields(RoutingPolicy)} - {"transformer"}
    unknown = sorted(table.keys() - names)
    if unknown:
        similar = difflib.get_close_matches(unknown[0], [*names, _PRESET], n=1)
        advice = f"; did you mean {similar[0]}?" if similar else ""
        raise UsageError(f"{where}.{unknown[0]}: unknown{advice}")

    from pydantic import ValidationError  # late: most programs have no such table

    readable = _convert_from_toml(table, where)
    try:
        return _adapter().validate_python(readable)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        # Report an unknown key before a missing key: the unknown one may be the missing one, misspelt.
        first = min(faults, key=lambda fault: fault["type"] != "unexpected_keyword_argument")
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}.{key}: {first['msg']}") from error
    except UsageError as error:
        # A value of the right type that makes no sense.
        raise UsageError(f"{where}: {error.message}") from error


def _convert_from_toml(settings: Mapping[str, object], where: str) -> Mapping[str, object]:
    """Convert what TOML cannot express: ``"none"`` means no limit, and a signature is written in hexadecimal digits."""
    readable: dict[str, object] = {}
    for key, value in settings.items():
        if key in _NESTED and isinstance(value, dict):
            readable[key] = _convert_from_toml(value, where)
        elif key.startswith("max_") and value == _NO_LIMIT:
            readable[key] = None
        elif key == "signatures" and isinstance(value, list):
            readable[key] = [_readable_signature(signature, where) for signature in value]
        else:
            readable[key] = value
    return readable


def _readable_signature(signature: object, where: str) -> object:
    if not isinstance(signature, dict) or "magic" not in signature:
        return signature
    try:
        return {**signature, "magic": bytes.fromhex(signature["magic"])}
    except (TypeError, ValueError):
        raise UsageError(f'{where}.signatures: magic must be hexadecimal digits, such as "41 43 4d 45"') from None


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[RoutingPolicy]:
    from pydantic import TypeAdapter

    return TypeAdapter(RoutingPolicy)


def _rename_settings(settings: Mapping[str, object], where: str) -> dict[str, object]:
    """Replace the names of settings in docs/requirements.md R2-4.2 by those of this kit. Unknown names stay."""
    renamed = _rename_keys(settings, POLICY_NAMES, where)
    if renamed.pop("auto_artifact_large_content", True) is False:
        renamed |= {"max_inline_chars": _NO_LIMIT, "max_inline_bytes": _NO_LIMIT}

    detection = renamed.pop("binary_detection", None)
    if isinstance(detection, dict):
        detection_key = f"{where}.binary_detection"
        _add_settings(renamed, _rename_detection(detection, detection_key), detection_key)
    elif detection is not None:
        raise UsageError(f"{where}.binary_detection: must be a table")

    agent = renamed.get("agent")
    if isinstance(agent, dict):
        renamed_agent = _rename_keys(agent, AGENT_NAMES, f"{where}.agent")
        if "auto_artifact_threshold" in renamed_agent:
            threshold = renamed_agent.pop("auto_artifact_threshold")
            _add_settings(renamed, {"max_inline_bytes": threshold}, f"{where}.agent")
        renamed["agent"] = renamed_agent

    tools = renamed.get("tool_fields")
    if isinstance(tools, dict):
        renamed["tool_fields"] = {
            tool: _rename_rule_keys(rules, f"{where}.tool_fields.{tool}") for tool, rules in tools.items()
        }
    return renamed


def _rename_rule_keys(rules: object, where: str) -> object:
    """Rename the keys of rules. Values of other types are left to the check of types."""
    if not isinstance(rules, list):
        return rules
    renamed_rules: list[object] = []
    for number, rule in enumerate(rules):
        if isinstance(rule, dict):
            rule = _rename_keys(rule, RULE_NAMES, f"{where}.{number}")
        renamed_rules.append(rule)
    return renamed_rules


def _rename_detection(table: Mapping[str, object], where: str) -> dict[str, object]:
    """Rename the settings of the table ``binary_detection``, whose ``signatures`` replace those of the kit."""
    unknown = sorted(table.keys() - {*DETECTION_NAMES, "signatures"})
    if unknown:
        raise UsageError(f"{where}.{unknown[0]}: unknown")

    detection = {DETECTION_NAMES[key]: value for key, value in table.items() if key in DETECTION_NAMES}
    signatures = table.get("signatures")
    if isinstance(signatures, dict):
        signatures_key = f"{where}.signatures"
        detection["signatures"] = [_signature(start, kind, signatures_key) for start, kind in signatures.items()]
        detection["known_signatures"] = False
    elif signatures is not None:
        raise UsageError(f'{where}.signatures: must be a table, such as JVBERi = ["pdf", "application/pdf"]')
    return detection


def _signature(start: str, kind: object, where: str) -> dict[str, object]:
    """Return the signature of files whose base64 begins with ``start``. ``kind`` is their extension and type."""
    if not isinstance(kind, list | tuple) or len(kind) != 2:
        raise UsageError(f'{where}.{start}: must be an extension and a type, such as ["pdf", "application/pdf"]')

    # A character has 6 bits. The last byte may be incomplete, so only whole bytes count.
    whole_bytes = len(start) * 6 // 8
    padding = "A" * (-len(start) % 4)
    try:
        magic = base64.b64decode(start + padding, validate=True)[:whole_bytes]
    except (binascii.Error, ValueError):
        raise UsageError(f"{where}.{start}: is not the beginning of base64") from None
    return {"magic": magic.hex(), "mime_type": kind[1]}


def _rename_keys(table: Mapping[str, object], names: Mapping[str, str], where: str) -> dict[str, object]:
    renamed = {key: value for key, value in table.items() if key not in names}
    for key in table.keys() & names.keys():
        _add_settings(renamed, {names[key]: table[key]}, where, f" ({key})")
    return renamed


def _add_settings(table: dict[str, object], more: Mapping[str, object], where: str, other_name: str = "") -> None:
    """Add settings, of which the table must have none already. Only a limit that was turned off stays as it is."""
    for key, value in more.items():
        if key in table and table[key] != _NO_LIMIT:
            raise UsageError(f"{where}: {key} is given under two names{other_name}; give one of them")
        table.setdefault(key, value)
