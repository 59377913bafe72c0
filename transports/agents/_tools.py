"""Tools of an app for a model: a tool for each capability, and one that reads files.

Each framework's function wraps :class:`AppTools`, which knows no framework. Schemas take files by reference:
:func:`_with_references` makes texts of parameters for files, and :func:`_named_files` finds these texts in a call. The
strict form (:func:`_strict_schema`) is the one in which a model can give nothing else; :func:`repair_arguments` undoes
it in a call."""

from __future__ import annotations

import base64
import codecs
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypedDict, TypeVar, cast

from .._internal.tasks import in_thread
from ..artifacts._base import ArtifactStore
from ..artifacts._ref import ArtifactRef
from ..artifacts.local._tree import open_beneath
from ..errors import ABPError, TooLarge, UsageError
from ..protocol._find_content import Place, field_of, replace_values
from ..protocol._plain_text import plain_text, similar_names
from ..protocol._strict_json import MAX_INTEGER, decode_user_json, encode_json, items_of
from ..protocol.schema import is_file, repair_arguments, tool_arguments
from ..routing._given_files import GivenFile, OpenFile, accept_files, is_textual
from ..routing._guard import json_size
from ..routing._result import Result, answered_files
from ..session._call import OnProgress, timeout_seconds
from ..session._session import Session
from ..surfaces.shared._capability_tools import (
    Advice,
    ModelSchema,
    app_arguments,
    error_lines,
    free_tool_name,
    model_schema,
    tool_description,
    tool_hints,
    tool_schema,
)
from ..surfaces.shared._previews import ImageLimits, Picture, read_page, read_pictures, read_texts

logger = logging.getLogger("transports")

T = TypeVar("T")

READ_TOOL = "abp_read_artifact"
_URI = "artifact://"
#: Maximum characters of a file in one answer.
_MAX_CHARS = 10_000
#: Limits of the images in one answer: bytes of each and of all.
_IMAGES = ImageLimits(each=500_000, total=2_000_000)
_ADVICE = Advice(
    by_code={
        "UNKNOWN_CAPABILITY": "use one of the tools that are listed",
        "CAPABILITY_UNAVAILABLE": "meet the requirement, then call again, or use another tool",
        "TIMEOUT": "{again}, for less at once",
        "DISCONNECTED": "{again}; if that fails too, tell the user that the app must be connected again",
    },
    no_artifact="use an id from the result of a tool",
    connect="tell the user that the app must be connected again",
    arguments="correct the arguments and call again",
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """Content of a file beside the text of an answer. ``label`` says which of several pictures it is."""

    data: bytes = field(repr=False)
    mime_type: str
    filename: str
    label: str = ""

    @property
    def base64(self) -> str:
        """The content as base64."""
        return base64.b64encode(self.data).decode()

    @property
    def is_image(self) -> bool:
        """True for an image."""
        return self.mime_type.startswith("image/")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a tool: the text for the model, and the content of files beside it.

    ``result`` is the result of the app's call, for the program; ``error`` the error of a call that failed, whose text
    says what the model can do."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    result: Result | None = None
    error: ABPError | None = None

    @property
    def document(self) -> dict[str, object] | None:
        """JSON about the result for message histories: what ``abp call --json`` prints, without ``data``, which may be
        large and is in the file at ``""``; ``None`` without a result."""
        if self.result is None:
            return None
        return {name: value for name, value in self.result.as_dict().items() if name != "data"}

    @property
    def is_error(self) -> bool:
        """True if the call failed."""
        return self.error is not None


def answer_parts(answer: Answer) -> Iterator[str | Attachment]:
    yield answer.text
    for attachment in answer.attachments:
        if attachment.label:
            yield attachment.label
        yield attachment


def content_of(answer: Answer, make_part: Callable[[str | Attachment], T]) -> str | list[T]:
    if not answer.attachments:
        return answer.text
    return [make_part(part) for part in answer_parts(answer)]


class ToolOptions(TypedDict, total=False):
    """Options of all functions of this room.

    ``attach`` are types of files, such as ``image/*`` (the default) or ``application/pdf``, whose content the model
    gets beside their references, if the framework has a place for it; large images are made smaller. ``roots`` are
    folders from which the model may give files to the app by their paths; without them it gives files by their ids
    only. ``strict`` has schemas written in the strict form of model providers wherever that is possible. ``timeout`` is
    for each call, in seconds, by default that of the session."""

    attach: Collection[str]
    roots: Sequence[str | Path]
    strict: bool
    timeout: float


@dataclass(frozen=True, slots=True)
class AppTool:
    """Tool of an app.

    ``schema`` is the JSON Schema of its arguments, in the strict form if ``strict``. ``hints`` are MCP's annotations
    (``readOnlyHint``, ``destructiveHint``, ``idempotentHint``, ``openWorldHint``): unverified claims of the app.
    ``capability`` is ``None`` for the tool that reads files."""

    name: str
    description: str
    schema: dict[str, object] = field(repr=False)
    capability: str | None = None
    hints: Mapping[str, bool] = field(default_factory=dict)
    strict: bool = False
    #: Schema before the strict form, and before texts stand for files.
    loose: Mapping[str, object] = field(default_factory=dict, repr=False)
    declared: ModelSchema = field(default_factory=lambda: ModelSchema({}), repr=False)


class AppTools:
    """Tools of one session, and their calls.

    :attr:`tools` follows the app's capabilities. A call never raises an error of the kit: its answer is the error, in
    words for the model."""

    def __init__(self, app: Session, options: ToolOptions) -> None:
        self.app = app
        self._attach = tuple(options.get("attach", ("image/*",)))
        self._roots = [Path(root) for root in options.get("roots", ())]
        self._file_description = "A file: the id of one that a tool has produced (artifact://…)"
        if self._roots:
            self._file_description += f", or the path of one below {', '.join(map(str, self._roots[:5]))}"
        self._strict = options.get("strict", False)
        timeout = options.get("timeout")
        self._timeout = None if timeout is None else timeout_seconds(timeout, 0)
        #: Capabilities from which the tools were made.
        self._capabilities: object = None
        self._tools: dict[str, AppTool] = {}

    @property
    def tools(self) -> Mapping[str, AppTool]:
        """Current tools by name: those of the first 127 capabilities, and ``abp_read_artifact``."""
        if self.app.capabilities is not self._capabilities:  # the session replaces them with each change
            self._capabilities = self.app.capabilities
            self._tools = self._make_tools()
        return self._tools

    def _make_tools(self) -> dict[str, AppTool]:
        marks_by_hint = {"readOnlyHint": "changes nothing", "destructiveHint": "may delete or overwrite"}
        tools: dict[str, AppTool] = {}
        # OpenAI refuses a request with more than 128 tools, of which one reads files.
        max_capabilities = 127
        total = len(self.app.capabilities)
        if total > max_capabilities:
            logger.warning("only the first %d of the app's %d capabilities are tools", max_capabilities, total)
        for name in islice(self.app.capabilities, max_capabilities):
            capability = self.app.capabilities[name]
            tool_name = free_tool_name(name, (READ_TOOL, *tools))
            hints = tool_hints(capability)
            marks = [mark for hint, mark in marks_by_hint.items() if hints.get(hint)]
            declared = model_schema(tool_schema(capability))
            description = tool_description(capability, declared.rules, *marks)
            tools[tool_name] = self._make_tool(tool_name, description, declared, name, hints)

        description = (
            "Read a file that a tool has produced, by its id: a page of a PDF, a part of a text, or an image. Other "
            "files are handed to tools by their id. (changes nothing)"
        )
        hints = {"readOnlyHint": True, "idempotentHint": True}
        tools[READ_TOOL] = self._make_tool(READ_TOOL, description, model_schema(self._read_schema()), None, hints)
        return tools

    def _make_tool(
        self, name: str, description: str, declared: ModelSchema, capability: str | None, hints: dict[str, bool]
    ) -> AppTool:
        """The schema takes files by their references, in the strict form if that is possible."""
        loose = _with_references(declared.schema, f"{self._file_description}.")
        strict = None
        if self._strict and declared.is_complete:
            strict = _strict_schema(loose)
        return AppTool(
            name=name,
            description=description,
            schema=strict or loose,
            capability=capability,
            hints=hints,
            strict=strict is not None,
            loose=loose,
            declared=declared,
        )

    async def call(
        self, name: str, arguments: Mapping[str, object] | str, *, on_progress: OnProgress | None = None
    ) -> Answer:
        """Call a tool with the arguments of a model, as an object or as its JSON. Cancelling this cancels the call in
        the app."""
        try:
            tool = self.tools.get(name)
            if tool is None:
                raise self._unknown_tool(name)

            checked = _read_arguments(tool, arguments)
            if tool.capability is None:
                return await self._read_artifact(checked)

            params = await self._prepare_params(tool, tool.capability, checked)
            result = await self.app.call(tool.capability, params, timeout=self._timeout, on_progress=on_progress)
            return await self._answer_with_result(result)
        except ABPError as error:
            return await _error_answer(error)

    def _unknown_tool(self, name: str) -> UsageError:
        message = f"unknown tool {name[:80]!r}"
        similar = similar_names(name, self.tools)
        if similar:
            message += f"; did you mean {similar[0]}?"
        return UsageError(message)

    async def _prepare_params(self, tool: AppTool, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Put each file in the place of the text that names it."""
        max_files = 16
        references = dict(islice(_named_files(tool.declared.schema, arguments), max_files + 1))
        if not references:
            return app_arguments(tool.declared, arguments)
        if len(references) > max_files:
            raise TooLarge(f"there are more than {max_files} files; give fewer at once")

        places = {field_of(place): place for place in references}
        with ExitStack() as stack:
            files = {key: self._open_given_file(references[place], key, stack) for key, place in places.items()}
            accepted = await accept_files(files, store=self.app.store, capability=name)

        contents: dict[Place, object] = {places[key]: file.binary for key, file in accepted.items()}
        return app_arguments(tool.declared, cast(Mapping[str, object], replace_values(arguments, contents)))

    def _open_given_file(self, reference: str, argument: str, stack: ExitStack) -> GivenFile | OpenFile:
        """``reference`` is an id, or a path below the allowed folders. A file with a path is open until ``stack`` is
        closed."""
        path = Path(reference)
        if reference.startswith(_URI) or not path.is_absolute():
            return GivenFile(id=reference)

        refused = UsageError(
            f"{argument}: this path may not be read; give the id of a file, or have the user allow its folder",
            details={"argument": argument},
        )
        file = stack.enter_context(open_beneath(reference, self._roots, refused))
        return OpenFile(file, None, Path(str(file.name)).name)

    def _read_schema(self) -> dict[str, object]:
        properties: dict[str, object] = {
            "id": {"type": "string", "description": "Id of the file, with or without artifact:// before it."},
            "page": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_INTEGER,
                "description": "Of a PDF: the page to read (1).",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_INTEGER,
                "description": "Of a text: the byte to begin with (0).",
            },
        }
        if self._is_attached("image/png"):
            properties["picture"] = {"type": "boolean", "description": "Of a PDF: the page as a picture, too."}
        return {"type": "object", "properties": properties, "required": ["id"], "additionalProperties": False}

    async def _read_artifact(self, arguments: Mapping[str, object]) -> Answer:
        """Raises :class:`~transports.errors.UsageError` for wrong arguments, a page that is not there, and a file that
        is neither text nor PDF nor image."""
        checked = tool_arguments(READ_TOOL, self._read_schema(), arguments)
        store = self.app.store
        ref = await store.stat(checked["id"].removeprefix(_URI))
        description = f"{ref.filename} ({ref.mime_type}, {ref.size_bytes:,} bytes)"

        if ref.mime_type == "application/pdf":
            return await _read_page(ref, store, checked.get("page", 1), with_picture=checked.get("picture") is True)
        if ref.mime_type.startswith("image/") and self._is_attached(ref.mime_type):
            pictures = await read_pictures([ref], store, _IMAGES)
            if pictures.shown:
                return Answer(plain_text(description), (_attachment(pictures.shown[0]),))
        if is_textual(ref.mime_type):
            return await _read_text(ref, store, checked.get("offset", 0))
        raise UsageError(f"{description} cannot be read as text; give its id to a tool that takes such a file")

    def _is_attached(self, mime_type: str) -> bool:
        return any(fnmatchcase(mime_type, pattern) for pattern in self._attach)

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _answer_with_result(self, result: Result) -> Answer:
        files: list[ArtifactRef] = []
        if result.inline_data:
            files = [ref for ref in answered_files(result).values() if ref.stored]
        texts = await read_texts(files, self.app.store, max_chars=8 * 1024)
        attachments, notes = await self._attach_files(files)
        text = "\n".join([await _encode_data(result), *notes, *texts])
        return Answer(plain_text(text), attachments, result)

    async def _attach_files(self, files: Sequence[ArtifactRef]) -> tuple[tuple[Attachment, ...], list[str]]:
        """Return also notes on files that are not shown as they are."""
        to_attach = [ref for ref in files if self._is_attached(ref.mime_type)]
        pictures = await read_pictures(to_attach, self.app.store, _IMAGES)
        attached = [_attachment(picture) for picture in pictures.shown]
        notes = [pictures.note] if pictures.note else []

        # Limits of the files other than images, in bytes: each, and all together.
        max_file_bytes = 5_000_000
        bytes_left = 10_000_000
        too_large = 0
        for ref in to_attach:
            if ref.mime_type.startswith("image/"):
                continue
            if ref.size_bytes > min(max_file_bytes, bytes_left):
                too_large += 1
                continue
            bytes_left -= ref.size_bytes
            content = await self.app.store.get(ref)
            attached.append(Attachment(content, ref.mime_type, ref.filename, ref.filename))

        if too_large:
            notes.append(f"Files: {too_large} too large to be shown")
        return tuple(attached), notes


def _read_arguments(tool: AppTool, arguments: Mapping[str, object] | str) -> dict[str, object]:
    """Leave out the nulls of members that the model leaves out. Models also write nothing, or null, for no
    arguments."""
    value: object = arguments
    if isinstance(arguments, str):
        value = decode_user_json(arguments.strip() or "{}", f"the arguments of {tool.name}", fix="give one JSON object")
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise UsageError(f"the arguments of {tool.name} must be an object")
    return dict(repair_arguments(tool.loose, value))


async def _encode_data(result: Result) -> str:
    shorten_data = partial(result.for_agent, max_bytes=min(16 * 1024, result.limits.max_bytes))
    # Large data may have a million values, which would hold up the event loop.
    if json_size(result.data) > 128 * 1024:
        data = await in_thread(shorten_data)
    else:
        data = shorten_data()
    return encode_json(data).decode()


async def _error_answer(error: ABPError) -> Answer:
    """The answer has the advice for a model and what was stored."""
    lines = error_lines(error, _ADVICE)
    result = None
    if isinstance(error.result, Result):
        result = error.result
        lines += ["Stored:", await _encode_data(result)]
    max_chars = 8 * 1024
    return Answer(plain_text("\n".join(lines))[:max_chars], (), result, error)


async def _read_page(ref: ArtifactRef, store: ArtifactStore, number: int, *, with_picture: bool) -> Answer:
    # A width of 0 pixels means no picture.
    width = 800 if with_picture else 0
    page = await read_page(ref, store, number, max_chars=_MAX_CHARS, width=width)

    text = page.text.strip() or "(no text on this page)"
    if len(page.text) >= _MAX_CHARS:
        text += "\n… (the page has more text)"
    attachments: tuple[Attachment, ...] = ()
    if page.picture is not None:
        attachments = (_attachment(page.picture),)
    return Answer(plain_text(f"Page {number} of {page.pages} of {ref.filename}:\n{text}"), attachments)


async def _read_text(ref: ArtifactRef, store: ArtifactStore, offset: int) -> Answer:
    """Return the part from the byte ``offset``, and the offset at which to continue."""
    data = await store.get(ref, offset=offset, length=_MAX_CHARS)
    end = offset + len(data)
    is_last_part = end >= ref.size_bytes
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=is_last_part)
    if not is_last_part:
        # The next part begins with the character that is cut here.
        unfinished, _ = decoder.getstate()
        end -= len(unfinished)
        text += f"\n… ({ref.size_bytes:,} bytes in all; continue with offset {end})"
    return Answer(plain_text(f"{ref.filename}, from byte {offset}:\n{text}"))


def _attachment(picture: Picture) -> Attachment:
    return Attachment(picture.data, picture.mime_type, picture.ref.filename, picture.label)


# --- schemas ----------------------------------------------------------------------------------------------------------

Schema: TypeAlias = dict[str, object]


def _with_references(schema: Mapping[str, object], description: str, *, is_root: bool = True) -> Schema:
    """Put a text parameter in the place of each parameter for a file. ``description`` says what to write there; it
    follows the parameter's own description. The object of all parameters (``is_root``) is never a file itself."""
    if not is_root and is_file(schema):
        return _text_schema(schema, description)
    if not is_root and _is_base64(schema):
        return _text_schema(schema, "Base64, or the URI of a file that a tool has produced (artifact://…).")

    replaced = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        replaced["properties"] = {
            name: _with_references(member, description, is_root=False) if isinstance(member, Mapping) else member
            for name, member in properties.items()
        }
    items = schema.get("items")
    if isinstance(items, Mapping):
        replaced["items"] = _with_references(items, description, is_root=False)
    return replaced


def _text_schema(schema: Mapping[str, object], description: str) -> Schema:
    if isinstance(schema.get("description"), str):
        description = f"{schema['description']}. {description}"
    return {"type": "string", "description": description}


def _named_files(schema: Mapping[str, object], value: object, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the place and the text of each argument that names a file. The app's own ``schema`` says which arguments
    are files."""
    if isinstance(value, str):
        # Any other text for a parameter in base64 is the content itself.
        is_artifact = _is_base64(schema) and value.startswith(_URI)
        if is_file(schema) or is_artifact:
            yield place, value
        return

    properties = schema.get("properties")
    items = schema.get("items")
    if isinstance(value, Mapping) and isinstance(properties, Mapping):
        for name, inner in value.items():
            member = properties.get(name)
            if isinstance(member, Mapping):
                yield from _named_files(member, inner, (*place, name))
    elif isinstance(value, list) and isinstance(items, Mapping):
        for index, inner in enumerate(value):
            yield from _named_files(items, inner, (*place, index))


def _is_base64(schema: Mapping[str, object]) -> bool:
    """MCP servers take files as texts in base64."""
    if schema.get("type") != "string":
        return False
    return schema.get("contentEncoding") == "base64" or schema.get("format") in ("byte", "binary", "base64")


#: Keywords that make a schema impossible to write strictly.
_NEVER_STRICT = (
    "allOf",
    "not",
    "if",
    "dependentSchemas",
    "dependencies",
    "dependentRequired",
    "patternProperties",
    "$ref",
    "$dynamicRef",
    "prefixItems",
    "propertyNames",
    "unevaluatedProperties",
)


class _NotStrict(Exception):
    """Reason for leaving a schema as it is."""


def _strict_schema(schema: Mapping[str, object]) -> Schema | None:
    """Return the strict form of model providers: objects have no other members, all members are required, and those
    that may be left out are nullable. Limits such as ``minLength`` are left out, since the session checks each call by
    the app's own schema. ``None`` if a model could then not say all that the app takes: objects with any members,
    references, values without a type."""
    try:
        return _to_strict(schema, 1)
    except _NotStrict:
        return None


def _to_strict(schema: object, level: int) -> Schema:
    """``level`` counts nested objects. Raises :class:`_NotStrict` without a strict form."""
    # The limit of OpenAI's structured outputs.
    max_level = 10
    if not isinstance(schema, Mapping) or level > max_level:
        raise _NotStrict
    if any(keyword in schema for keyword in _NEVER_STRICT):
        raise _NotStrict

    description: Schema = {}
    if "description" in schema:
        description["description"] = schema["description"]

    branches = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(branches, list):
        return {**description, "anyOf": [_strict_branch(branch, level) for branch in branches]}

    kind = schema.get("type", _kind_of_values(schema))
    if kind == "object":
        return {**description, **_strict_object(schema, level)}
    if kind == "array":
        return {**description, "type": "array", "items": _to_strict(schema.get("items"), level)}

    kinds = kind if isinstance(kind, list) else [kind]
    simple_kinds = ("string", "number", "integer", "boolean", "null")
    if not kinds or not all(name in simple_kinds for name in kinds):
        raise _NotStrict
    values = {key: schema[key] for key in ("enum", "const") if key in schema}
    return {"type": kind, **description, **values}


def _strict_branch(schema: object, level: int) -> Schema:
    """An object among alternatives must not have optional members: it would not be known which alternative the null of
    a member belongs to."""
    strict = _to_strict(schema, level)
    if isinstance(schema, Mapping) and "object" in _kinds(schema):
        required = schema.get("required")
        members = cast(Schema, strict.get("properties", {}))
        if not isinstance(required, list) or not members.keys() <= {*map(str, required)}:
            raise _NotStrict
    return strict


def _kinds(schema: Mapping[str, object]) -> list[object]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _strict_object(schema: Mapping[str, object], level: int) -> Schema:
    """Optional members become required and nullable."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties", False) is not False:
        raise _NotStrict
    required = items_of(schema.get("required"))
    undeclared = {str(name) for name in required} - properties.keys()
    if undeclared:
        raise _NotStrict

    members: Schema = {}
    for name, member in properties.items():
        strict = _to_strict(member, level + 1)
        if name not in required:
            strict = _allow_null(strict)
        members[name] = strict
    return {"type": "object", "properties": members, "required": [*members], "additionalProperties": False}


def _allow_null(schema: Schema) -> Schema:
    if _allows_null(schema):
        return schema

    kind = schema.get("type")
    is_simple = isinstance(kind, str | list) and kind not in ("object", "array")
    if is_simple and "const" not in schema:
        nullable = {**schema, "type": [*_kinds(schema), "null"]}
        values = schema.get("enum")
        if isinstance(values, list):
            nullable["enum"] = [*values, None]
        return nullable

    branches = schema.get("anyOf")
    if isinstance(branches, list):
        return {**schema, "anyOf": [*branches, {"type": "null"}]}

    # A constant, an object or a list: it becomes one of two alternatives, below their description.
    description = {key: value for key, value in schema.items() if key == "description"}
    rest = {key: value for key, value in schema.items() if key != "description"}
    return {**description, "anyOf": [rest, {"type": "null"}]}


def _kind_of_values(schema: Mapping[str, object]) -> str | None:
    """Return the type of an enumeration without one, if all its values are texts."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return "string"
    return None


def _allows_null(schema: Mapping[str, object]) -> bool:
    if "null" in _kinds(schema):
        return True
    branches = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(branches, list):
        return any(isinstance(branch, Mapping) and _allows_null(branch) for branch in branches)
    values = schema.get("enum")
    return "type" not in schema and isinstance(values, list) and None in values
