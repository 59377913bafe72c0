"""Parameters of a call from the command line: ``--params``, ``-p`` and ``--file``."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import ProtocolError, UsageError
from ...protocol._params import prepare_params, set_path
from ...protocol._plain_text import plain_line
from ...protocol._strict_json import decode_given, decode_json
from ...protocol.binary import BinaryData
from ...protocol.schema import fits_at
from ._output import print_note

#: Largest text that is read as parameters, in bytes; larger content must be given as a file.
_MAX_TEXT = 64_000_000


#: Names that mean a file or stdout (``-``), and hardly ever a folder.
_FILE_NAME = re.compile(
    r"-|.*\.(?:bin|csv|docx|gif|gz|html?|jpe?g|jsonl?|md|mp3|mp4|pdf|png|svg|txt|wav|webp|xlsx|xml|zip)", re.IGNORECASE
)


class Params(dict[str, object]):
    """Parameters of a call. ``texts`` are those of ``KEY=VALUE`` that were decoded as JSON, by the path of the key."""

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        super().__init__(values or {})
        self.texts: dict[tuple[str, ...], str] = {}

    def fit_to(self, schema: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters for a capability with this schema. A text that is also valid JSON, such as in
        ``-p phone=12345``, stays text where the schema takes only text."""
        params: dict[str, Any] = dict(self)
        if not schema:
            return params
        for path, text in self.texts.items():
            with_text = copy.deepcopy(params)
            set_path(with_text, path, text)
            if not _is_valid_at(schema, params, path) and _is_valid_at(schema, with_text, path):
                params = with_text
        return params


def _is_valid_at(schema: Mapping[str, object], params: dict[str, Any], path: tuple[str, ...]) -> bool:
    prepared, content = prepare_params(params)
    return fits_at(schema, prepared, path, [place.path for place in content])


@dataclass(frozen=True, slots=True)
class ParamOptions:
    params: Annotated[
        str | None, typer.Option("--params", metavar="JSON|@FILE|-", help="Parameters: JSON, a file, or stdin.")
    ] = None
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            metavar="KEY=VALUE",
            help="One parameter: JSON, or text where the app takes text; @FILE reads it from a file.",
        ),
    ] = None
    files: Annotated[list[str] | None, typer.Option("--file", metavar="KEY=PATH", help="A file as a parameter.")] = None

    def read(self) -> Params:
        return read_params(self.params, self.pairs or (), self.files or ())


def read_params(text: str | None, pairs: Sequence[str], files: Sequence[str]) -> Params:
    """Return the parameters of a call.

    ``text`` is the value of ``--params JSON|@FILE|-``. ``pairs`` are ``KEY=VALUE`` (see :func:`read_value`) and
    ``files`` are ``KEY=PATH``; a dot in KEY leads into an object. A key may be given once and overrides ``text``.
    May wait for stdin. Raises :class:`~transports.errors.UsageError` for anything that cannot be read."""
    params = Params(None if text is None else _read_object(text))
    paths: set[tuple[str, ...]] = set()
    for pair in pairs:
        key, value = _split_pair(pair, "-p KEY=VALUE", "-p title=Report")
        set_value(params, key, value, f"-p {pair}", paths)
    for pair in files:
        key, value = _split_pair(pair, "--file KEY=PATH", "--file image=photo.png")
        set_param(params, key, read_file(value, f"--file {pair}"), paths)
    return params


def read_file(path: str, source: str) -> BinaryData:
    """Return a file as a parameter. Raises :class:`~transports.errors.UsageError`, with ``source`` in its message, if
    it is not a regular file: a pipe has no size and cannot be read twice."""
    file = Path(path)
    if file.exists() and not file.is_file():
        raise UsageError(f"{source}: {path} is not a regular file; name one, or save its content to one first")
    try:
        return BinaryData.from_path(file)
    except UsageError as error:
        raise UsageError(f"{source}: {error.message}") from None


def require_folder(file: Path | None) -> None:
    """Raise :class:`~transports.errors.UsageError` for an output file that cannot be written. Called before the work,
    so that its result is not lost."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(f"{file} cannot be written: name a file in a folder that exists")


def refuse_file_name(out: str) -> None:
    """Raise :class:`~transports.errors.UsageError` if ``--out`` names a missing folder that looks like a file or
    stdout, since ``--out`` is a file in other programs. With a trailing slash any name is a folder."""
    folder = Path(out)
    looks_like_file = _FILE_NAME.fullmatch(folder.name) is not None
    if "://" in out or out.endswith("/") or not looks_like_file:
        return
    # Some texts cannot be a path at all, such as one that is too long.
    with contextlib.suppress(OSError, ValueError):
        if folder.is_dir():
            return
    raise UsageError(
        f"--out {out}: --out takes a folder for the files, not a file; leave it out, and copy the stored file "
        f"with `abp artifacts get NAME {out}`"
    )


def _read_object(text: str) -> dict[str, Any]:
    """Return the JSON object in the value of ``--params``. Raises :class:`~transports.errors.UsageError` for anything
    else."""
    source, data = _read_json(text)
    fix = "correct it"
    if source == "--params":
        fix = "quote it for the shell: --params '{\"key\": 1}'"
    params = decode_given(data, source, fix=fix)
    if not isinstance(params, dict):
        raise UsageError(f"{source} must be a JSON object such as '{{\"key\": 1}}', not {_kind_of(params)}")
    return params


def _read_json(text: str) -> tuple[str, str]:
    """Return the source of the JSON, for messages, and the JSON."""
    if text.startswith("@"):
        source = f"--params {text}"
        return source, read_text(text, source)
    if text != "-":
        return "--params", text

    source = "--params - (stdin)"
    if sys.stdin is None:
        raise UsageError(f"{source}: stdin is closed; use --params @FILE")
    if sys.stdin.isatty():
        print_note("type the parameters as JSON, then Ctrl-D", always=True)
    return source, read_text(text, source)


def read_text(text: str, source: str, fix: str = "correct the file name after @") -> str:
    """Return the text of ``@FILE``, or of stdin for ``-``."""
    try:
        if text == "-":
            data = sys.stdin.buffer.read(_MAX_TEXT + 1)
        else:
            with Path(text[1:]).open("rb") as file:
                data = file.read(_MAX_TEXT + 1)
        if len(data) > _MAX_TEXT:
            raise UsageError(f"{source} is larger than {_MAX_TEXT:,} bytes; give a file with --file KEY=PATH")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8, or give a binary "
            "with --file KEY=PATH"
        ) from error
    except (OSError, ValueError) as error:
        # A name with a null character raises ValueError.
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{source}: cannot be read ({reason}); {fix}") from error


def _kind_of(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _split_pair(pair: str, form: str, example: str) -> tuple[list[str], str]:
    """Return the steps of the key, and the value, of ``KEY=VALUE``. Raises :class:`~transports.errors.UsageError` with
    the ``form`` and an ``example``."""
    key, equals, value = pair.partition("=")
    path = key.split(".")
    if not equals or not all(path):
        advice = ""
        if pair.startswith("@"):
            advice = f"; for all parameters of a file: --params {pair}"
        raise UsageError(f"{pair!r} is not of the form {form}, such as {example}{advice}")
    return path, value


def parse_value(text: str) -> object:
    """Return ``text`` decoded as JSON, or unchanged if it is not JSON."""
    try:
        return decode_json(text)
    except ProtocolError:
        return text


def set_value(params: Params, key: Sequence[str], text: str, source: str, paths: set[tuple[str, ...]]) -> None:
    """Set the parameter at the path ``key`` to the VALUE of ``KEY=VALUE``: JSON if it is valid, text otherwise.

    ``@FILE`` stands for the content of a file, ``@@`` for a text that begins with ``@``. Raises the errors of
    :func:`set_param`, and :class:`~transports.errors.UsageError`, with ``source`` in its message, for a file that
    cannot be read, is larger than 64 MB, or is not UTF-8."""
    if text.startswith("@@"):
        set_param(params, key, text[1:], paths)
        return
    if text.startswith("@"):
        text = read_text(text, source, "correct the file name, or write @@ for a text that begins with @")
    value = parse_value(text)
    set_param(params, key, value, paths)
    if not isinstance(value, str):
        params.texts[tuple(key)] = text


#: Most characters of a value in an example; a longer one is read from a file.
_MAX_EXAMPLE = 2000
#: Backslashes that fish reads as an escape inside of single quotes.
_ESCAPES_IN_FISH = re.compile(r"\\(?=[\\']|$)")


def example_words(params: Mapping[str, object]) -> list[str]:
    """Return the words of a command that give ``params``, quoted for bash, zsh and fish."""
    if not all(map(_can_be_key, params)):
        return ["--params", shell_word(json_line(params))]

    words = []
    for name, value in params.items():
        if isinstance(value, str) and _can_be_text(value):
            text = value
        else:
            text = json_line(value)
        if len(text) > _MAX_EXAMPLE:
            suffix = "txt" if isinstance(value, str) else "json"
            text = f"@{name}.{suffix}"
        words += ["-p", shell_word(f"{name}={text}")]
    return words


def _can_be_key(name: str) -> bool:
    """Return whether a parameter's name can be the KEY in ``KEY=VALUE``."""
    has_separator = "." in name or "=" in name
    return name != "" and not has_separator and not name.startswith("@") and plain_line(name) == name


def _can_be_text(value: str) -> bool:
    """Return whether a text can be the VALUE in ``KEY=VALUE`` as it is: in one plain line, and neither JSON nor
    ``@FILE``."""
    is_json = parse_value(value) != value
    return not is_json and not value.startswith("@") and plain_line(value) == value


def json_line(value: object) -> str:
    """Return ``value`` as JSON that stays as it is in one plain line."""
    text = json.dumps(value, ensure_ascii=False)
    if plain_line(text) == text:
        return text
    return json.dumps(value).replace("  ", " \\u0020").replace("\x7f", "\\u007f")


def shell_word(text: str) -> str:
    """Return ``text`` as one word of bash, zsh and fish. ``text`` is without control characters."""
    if not _ESCAPES_IN_FISH.search(text):
        # zsh expands a word that begins with =, and fish one that begins with %.
        if text[:1] in ("=", "%"):
            return f"'{text}'"
        return shlex.quote(text)

    # The backslashes are in double quotes, which all three shells read alike.
    words = [shlex.quote(part) if part else "" for part in text.split("\\")]
    return '"\\\\"'.join(words)


def set_param(params: dict[str, Any], key: Sequence[str], value: object, paths: set[tuple[str, ...]]) -> None:
    """Set the parameter at the path ``key``, and add the path to ``paths``. Raises
    :class:`~transports.errors.UsageError` if it would replace a parameter in ``paths``."""
    path = tuple(key)
    for other in paths:
        if other[: len(path)] == path:
            name = ".".join(path)
            problem = "is given twice"
            if other != path:
                problem = f"would replace {'.'.join(other)!r}"
            raise UsageError(f"{name!r} {problem}; give it once, or a list as JSON: -p '{name}=[1, 2]'")
    paths.add(path)
    try:
        set_path(params, key, value)
    except UsageError as error:
        raise UsageError(f"{error.message} with --params") from None
