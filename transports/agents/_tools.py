"""Tools of an app for a model: a tool for each capability, and one that reads files.

Each framework's function wraps :class:`AppTools`, which knows no framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypedDict, cast

from ..artifacts import ArtifactRef, open_beneath
from ..binary.detect import Place, field_of, replace
from ..errors import ABPError, TooLarge, UsageError
from ..protocol import decode_given, encode_json, plain_text, similar_names
from ..routing import GivenFile, OpenFile, Result, accept_files, answered_files, json_size
from ..session import OnProgress, Session, timeout_seconds
from ..surfaces.shared import (
    MAX_TOOLS,
    Advice,
    ImageLimits,
    error_lines,
    free_tool_name,
    read_pictures,
    read_texts,
    tool_description,
    tool_hints,
    tool_schema,
    with_tool_names,
)
from ..tasks import in_thread
from ._answers import Answer, Attachment, is_attached
from ._reading import READ_DESCRIPTION, READ_TOOL, attachment, read_artifact, read_schema
from ._schemas import URI, given_files, object_schema, strict_schema, with_references, without_nulls


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


#: Most bytes of the data of an answer as JSON, and most characters of the beginnings of its files.
_MAX_DATA, _MAX_TEXTS = 16 * 1024, 8 * 1024
#: Most characters of an error.
_MAX_ERROR = 8 * 1024
#: Bytes of an answer above which it is read in a thread: it may have a million values.
_LARGE_BYTES = 128 * 1024
#: Most files that one call gives to an app.
_MAX_GIVEN = 16
#: Bytes of images in one answer, each and all; of other files, each and all.
_IMAGES = ImageLimits(each=500_000, total=2_000_000)
_MAX_FILE, _MAX_FILES = 5_000_000, 10_000_000
_REFERENCE = "A file: the id of one that a tool has produced (artifact://…)"
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
    #: Schema before the strict form.
    loose: Mapping[str, object] = field(default_factory=dict, repr=False)


class AppTools:
    """Tools of one session, and their calls.

    :attr:`tools` follows the app's capabilities. A call never raises an error of the kit: its answer is the error, in
    words for the model."""

    def __init__(self, app: Session, options: ToolOptions) -> None:
        self.app = app
        self._attach = tuple(options.get("attach", ("image/*",)))
        self._roots = [Path(root) for root in options.get("roots", ())]
        self._strict = options.get("strict", False)
        timeout = options.get("timeout")
        self._timeout = None if timeout is None else timeout_seconds(timeout, 0)
        self._known: object = None
        self._tools: dict[str, AppTool] = {}

    @property
    def tools(self) -> Mapping[str, AppTool]:
        """Current tools by name: those of the first 200 capabilities, and ``abp_read_artifact``."""
        if self.app.capabilities is not self._known:  # replaced by the session with each change
            self._known, self._tools = self.app.capabilities, self._made()
        return self._tools

    def _made(self) -> dict[str, AppTool]:
        schema = read_schema(self._attach)
        hints = {"readOnlyHint": True, "idempotentHint": True}
        made = {READ_TOOL: self._tool(READ_TOOL, READ_DESCRIPTION, schema, None, hints)}
        for name in islice(self.app.capabilities, MAX_TOOLS):
            capability = self.app.capabilities[name]
            hints, tool = tool_hints(capability), free_tool_name(name, made)
            marks = [mark for hint, mark in _MARKS.items() if hints.get(hint)]
            schema = with_references(tool_schema(capability), self._reference())
            made[tool] = self._tool(tool, tool_description(capability, *marks), schema, name, hints)
        made[READ_TOOL] = made.pop(READ_TOOL)  # the app's own first
        return made

    def _reference(self) -> str:
        if not self._roots:
            return f"{_REFERENCE}."
        return f"{_REFERENCE}, or the path of one below {', '.join(map(str, self._roots[:5]))}."

    def _tool(
        self, name: str, description: str, schema: dict[str, object], capability: str | None, hints: dict[str, bool]
    ) -> AppTool:
        schema = object_schema(schema)
        strict = strict_schema(schema) if self._strict else None
        return AppTool(name, description, strict or schema, capability, hints, strict is not None, schema)

    async def call(
        self, name: str, arguments: Mapping[str, object] | str, *, on_progress: OnProgress | None = None
    ) -> Answer:
        """Call a tool with the arguments of a model, as an object or as its JSON. Cancelling this cancels the call in
        the app."""
        try:
            tool = self.tools.get(name)
            if tool is None:
                close = similar_names(name, self.tools)
                raise UsageError(f"there is no tool {name[:80]!r}{f'; did you mean {close[0]}?' if close else ''}")
            given = _arguments(tool, arguments)
            if tool.capability is None:
                return await read_artifact(self.app.store, given, attach=self._attach, limits=_IMAGES)
            params = await self._params(tool.capability, given)
            result = await self.app.call(tool.capability, params, timeout=self._timeout, on_progress=on_progress)
            return await self._answer(result)
        except ABPError as error:
            return await _failed(error)

    async def _params(self, name: str, given: Mapping[str, object]) -> Mapping[str, object]:
        """Return the parameters of a capability, with each file in the place of the text that names it."""
        capability = self.app.capabilities.get(name)
        named = dict(islice(given_files(capability.input_schema if capability else {}, given), _MAX_GIVEN + 1))
        if not named:
            return given
        if len(named) > _MAX_GIVEN:
            raise TooLarge(f"there are more than {_MAX_GIVEN} files; give fewer at once")
        places = {field_of(place): place for place in named}
        with ExitStack() as opened:
            files = {key: self._file(named[place], key, opened) for key, place in places.items()}
            known = {key: file for key, file in files.items() if file is not None}
            accepted = await accept_files(known, store=self.app.store, capability=name)
        filled: dict[Place, object] = {places[key]: one.binary for key, one in accepted.items()}
        return cast(Mapping[str, object], replace(given, filled))

    def _file(self, text: str, key: str, opened: ExitStack) -> GivenFile | OpenFile | None:
        path = Path(text)
        if not text.startswith(URI) and path.is_absolute():
            refused = UsageError(
                f"{key}: this path may not be read; give the id of a file, or have the user allow its folder",
                details={"argument": key},
            )
            file = opened.enter_context(open_beneath(text, self._roots, refused))
            return OpenFile(file, None, Path(str(file.name)).name)
        return GivenFile(id=text)

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _answer(self, result: Result) -> Answer:
        result = with_tool_names(result)
        files = [ref for ref in answered_files(result).values() if ref.stored] if result.inline_data else []
        texts = await read_texts(files, self.app.store, _MAX_TEXTS)
        attachments, notes = await self._attachments(files)
        text = "\n".join([await _data(result), *notes, *texts])
        return Answer(plain_text(text), attachments, result)

    async def _attachments(self, files: Sequence[ArtifactRef]) -> tuple[tuple[Attachment, ...], list[str]]:
        chosen = [ref for ref in files if is_attached(ref.mime_type, self._attach)]
        pictures = await read_pictures(chosen, self.app.store, _IMAGES)
        attached, room, left = [attachment(picture) for picture in pictures.shown], _MAX_FILES, 0
        for ref in (ref for ref in chosen if not ref.mime_type.startswith("image/")):
            if ref.size_bytes > min(_MAX_FILE, room):
                left += 1
                continue
            room -= ref.size_bytes
            attached.append(Attachment(await self.app.store.get(ref), ref.mime_type, ref.filename, ref.filename))
        notes = [pictures.note] if pictures.note else []
        return tuple(attached), notes + ([f"Files: {left} too large to be shown"] if left else [])


_MARKS = {"readOnlyHint": "changes nothing", "destructiveHint": "may delete or overwrite"}


def _arguments(tool: AppTool, arguments: Mapping[str, object] | str) -> dict[str, object]:
    given: object = arguments
    if isinstance(arguments, str):
        given = decode_given(arguments or "{}", f"the arguments of {tool.name}", fix="give one JSON object")
    if not isinstance(given, Mapping):
        raise UsageError(f"the arguments of {tool.name} must be an object")
    plain = without_nulls(tool.loose, given) if tool.strict else given
    return dict(cast(Mapping[str, object], plain))


async def _data(result: Result) -> str:
    read = partial(result.for_agent, max_bytes=min(_MAX_DATA, result.limits.max_bytes))
    seen = await in_thread(read) if json_size(result.data) > _LARGE_BYTES else read()
    return encode_json(seen).decode()


async def _failed(error: ABPError) -> Answer:
    lines, result = error_lines(error, _ADVICE), None
    if isinstance(error.result, Result):  # part of the answer is in the store
        result = error.result
        lines += ["Stored all the same:", await _data(result)]
    return Answer(plain_text("\n".join(lines))[:_MAX_ERROR], (), result, error)
