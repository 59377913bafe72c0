"""A line of ``abp shell``: a capability and its parameters, read and completed. No I/O but looking for files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from ...errors import ProtocolError, UsageError
from ...protocol.plain_text import plain_line
from .params import parse_value, read_file, read_value, set_param

if TYPE_CHECKING:
    from ...protocol.declarations import Capability

__all__ = ["COMMANDS", "LineCompleter", "parse_line"]

#: The shell's own commands, where the app has no capability of the name.
COMMANDS = {
    "help": "what can be typed; help CAPABILITY: its parameters",
    "exit": "end the shell, as Ctrl-D does",
}
_KEY = re.compile(r"\s*([^\s=@'\"{}\[\]]+)([=@])")
_DECODER = json.JSONDecoder()


def parse_line(line: str) -> tuple[str, dict[str, object]]:
    """Return the first word of a line, and the parameters after it.

    These are one JSON object, or any number of ``KEY=VALUE`` (JSON, or else text up to the next space, or ``@FILE``; in
    quotes for more) and ``KEY@PATH`` (a file); a dot in KEY leads into an object. Raises
    :class:`~transports.errors.UsageError` for anything else."""
    name, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if rest.startswith("{"):
        return name, _json_object(rest)
    params: dict[str, object] = {}
    given: set[tuple[str, ...]] = set()
    while rest:
        match = _KEY.match(rest)
        path = match[1].split(".") if match else []
        if match is None or not all(path):
            word = rest.split()[0]
            raise UsageError(f"{word!r} is not of the form KEY=VALUE or KEY@FILE, such as title=Report or image@a.png")
        value, text, rest = _value(rest[match.end() :], match[1], is_file=match[2] == "@")
        if match[2] == "@":
            set_param(params, path, read_file(text, f"{match[1]}@{text}"), given)
        else:
            set_param(params, path, value, given)
    return name, params


def _json_object(text: str) -> dict[str, object]:
    from ...protocol.strict_json import decode_json

    try:
        params = decode_json(text)
    except ProtocolError as error:
        raise UsageError(f"this is not JSON ({error.message.partition('cannot be read: ')[2]}): {text}") from error
    assert isinstance(params, dict)
    return params


def _value(rest: str, key: str, *, is_file: bool) -> tuple[object, str, str]:
    """The value at the beginning of ``rest``, its text, and what follows."""
    if rest[:1] == "'":
        text, quote, after = rest[1:].partition("'")
        if not quote or after[:1].strip():
            raise UsageError(f"{key}: the quote ' does not end, or something follows it without a space")
        return text, text, after.strip()
    if rest[:1] in ('"', "{", "["):
        try:
            decoded, end = _DECODER.raw_decode(rest)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UsageError(f"{key}: {rest} is not JSON ({error}); for text as it is: {key}='…'") from None
        if rest[end : end + 1].strip():
            raise UsageError(f"{key}: {rest[end:].split()[0]!r} follows the value without a space")
        return parse_value(rest[:end]), str(decoded), rest[end:].strip()
    text, _, after = rest.partition(" ")
    return (text if is_file else read_value(text, f"{key}={text}")), text, after.strip()


class LineCompleter(Completer):
    """Completes names of capabilities, of their parameters, their values, and paths of files."""

    def __init__(self, capabilities: Callable[[], Mapping[str, Capability]]) -> None:
        self._capabilities = capabilities
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may stand at the cursor."""
        text = document.text_before_cursor.lstrip()
        name, space, rest = text.partition(" ")
        known = self._capabilities()
        if not space or name == "help":
            yield from self._names(rest if space else name, known, commands=not space)
        elif name in known:
            yield from self._parameters(rest, known[name], complete_event)

    def _names(self, typed: str, known: Mapping[str, Capability], *, commands: bool) -> Iterator[Completion]:
        described = {name: capability.description for name, capability in known.items()}
        for name, description in sorted(((COMMANDS if commands else {}) | described).items()):
            if name.startswith(typed):
                yield Completion(name, -len(typed), plain_line(name), plain_line(description))

    def _parameters(self, rest: str, capability: Capability, event: CompleteEvent) -> Iterator[Completion]:
        word = rest.rpartition(" ")[2]
        given = set(re.findall(r"(?:^|\s)([^\s=@]+)[=@]", rest))
        match = re.match(r"([^=@]*)([=@])(.*)", word)
        schema: Mapping[str, Any] = capability.input_schema
        if match is None:
            above, dot, typed = word.rpartition(".")
            for name, one in _properties(_at(schema, above.split(".") if dot else [])).items():
                full = f"{above}{dot}{name}"
                if name.startswith(typed) and full not in given:
                    ends = "." if _properties(one) else "="
                    described = plain_line(str(one.get("description", "")))
                    yield Completion(f"{name}{ends}", -len(typed), plain_line(f"{name}{ends}"), described)
        elif match[2] == "@":
            yield from self._paths.get_completions(Document(match[3]), event)
        else:
            one = _at(schema, match[1].split("."))
            values = [True, False] if one.get("type") == "boolean" else one.get("enum", [])
            for value in values if isinstance(values, list) else []:
                shown = value if isinstance(value, str) and " " not in value else json.dumps(value)
                if shown.startswith(match[3]):
                    yield Completion(shown, -len(match[3]))


def _at(schema: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    """The schema of the parameter at a path; an empty one where none is declared."""
    for step in path:
        schema = _properties(schema).get(step, {})
    return schema


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The declared properties of an object. The schema is the app's, which may have written anything."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): one if isinstance(one, Mapping) else {} for name, one in properties.items()}
