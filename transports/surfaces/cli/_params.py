"""Parameters of a call from the command line: ``--params``, ``-p`` and ``--file``."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ProtocolError, UsageError
from ._output import print_note

if TYPE_CHECKING:
    from ...binary import BinaryData

#: Bytes of a text that is read as parameters; larger content is a file.
_MAX_TEXT = 64_000_000


#: A name that is a file's or that of stdout, and hardly a folder's.
_FILE_NAME = re.compile(
    r"-|.*\.(?:bin|csv|docx|gif|gz|html?|jpe?g|jsonl?|md|mp3|mp4|pdf|png|svg|txt|wav|webp|xlsx|xml|zip)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ParamOptions:
    """The options of a command that hold the parameters of a call."""

    params: Annotated[
        str | None, typer.Option("--params", metavar="JSON|@FILE|-", help="Parameters: JSON, a file, or stdin.")
    ] = None
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            metavar="KEY=VALUE",
            help="One parameter; JSON if it is valid JSON, else text; @FILE reads it from a file.",
        ),
    ] = None
    files: Annotated[list[str] | None, typer.Option("--file", metavar="KEY=PATH", help="A file as a parameter.")] = None

    def read(self) -> dict[str, object]:
        """Return the parameters, as :func:`read_params` does."""
        return read_params(self.params, self.pairs or (), self.files or ())


def read_params(text: str | None, pairs: Sequence[str], files: Sequence[str]) -> dict[str, object]:
    """Return the parameters of a call.

    ``text`` is that of ``--params JSON|@FILE|-``. Then come ``pairs``, ``KEY=VALUE`` (see :func:`read_value`), and
    ``files``, ``KEY=PATH``; a dot in KEY leads into an object. Each key of these is given once, and replaces one of
    ``text``. May wait for stdin. Raises :class:`~transports.errors.UsageError` for anything that cannot be read."""
    params = {} if text is None else _document(text)
    given: set[tuple[str, ...]] = set()
    for pair in pairs:
        key, value = _split(pair, "-p KEY=VALUE", "-p title=Report")
        set_param(params, key, read_value(value, f"-p {pair}"), given)
    for pair in files:
        key, value = _split(pair, "--file KEY=PATH", "--file image=photo.png")
        set_param(params, key, read_file(value, f"--file {pair}"), given)
    return params


def read_file(path: str, source: str) -> BinaryData:
    """Return a file as a parameter. Raises :class:`~transports.errors.UsageError`, which names ``source``, for what is
    no regular file: a pipe has no size and cannot be read twice."""
    from ...binary import BinaryData

    file = Path(path)
    if file.exists() and not file.is_file():
        raise UsageError(f"{source}: {path} is no regular file; name one, or save its content to one first")
    return BinaryData.from_path(file)


def require_folder(file: Path | None) -> None:
    """Raise :class:`~transports.errors.UsageError` for a file that cannot be written, before any work and not after
    it."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(f"{file} cannot be written: name a file in a folder that exists")


def refuse_file_name(out: str) -> None:
    """Raise :class:`~transports.errors.UsageError` for a folder of ``--out`` that is not there and has the name of a
    file, or of stdout: other commands take these after such an option. A slash at its end makes any name a folder's."""
    folder = Path(out)
    if "://" in out or out.endswith("/") or not _FILE_NAME.fullmatch(folder.name):
        return
    with contextlib.suppress(OSError, ValueError):  # what no name of a file can be
        if folder.is_dir():
            return
    raise UsageError(
        f"--out {out}: it is a folder for the files that is named here; leave it out, and copy what was stored "
        f"with `abp artifacts get NAME {out}`"
    )


def _document(text: str) -> dict[str, Any]:
    from ...protocol import decode_given

    source, data = _read(text)
    fix = "quote it for the shell: --params '{\"key\": 1}'" if source == "--params" else "correct it"
    params = decode_given(data, source, fix=fix)
    if not isinstance(params, dict):
        raise UsageError(f"{source} must be a JSON object such as '{{\"key\": 1}}', not {_kind(params)}")
    return params


def _read(text: str) -> tuple[str, str]:
    """The source of the JSON, for messages, and the JSON."""
    if text != "-" and not text.startswith("@"):
        return "--params", text
    source = f"--params {text}" + " (stdin)" * (text == "-")
    if text == "-" and sys.stdin is None:
        raise UsageError(f"{source}: there is no stdin; use --params @FILE")
    if text == "-" and sys.stdin.isatty():
        print_note("type the parameters as JSON, then Ctrl-D", always=True)
    return source, _read_text(text, source)


def _read_text(text: str, source: str, fix: str = "correct the file name after @") -> str:
    """The text of ``@FILE``, or of stdin for ``-``."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if text == "-" else Path(text[1:]).open("rb") as file:
            data = file.read(_MAX_TEXT + 1)
        if len(data) > _MAX_TEXT:
            raise UsageError(f"{source} is larger than {_MAX_TEXT:,} bytes; give a file with --file KEY=PATH")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8, or give a binary "
            "with --file KEY=PATH"
        ) from error
    except (OSError, ValueError) as error:  # the latter for a name with a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{source}: cannot be read ({reason}); {fix}") from error


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _split(pair: str, form: str, example: str) -> tuple[list[str], str]:
    key, equals, value = pair.partition("=")
    path = key.split(".")
    if not equals or not all(path):
        whole = f"; for all parameters of a file: --params {pair}" if pair.startswith("@") else ""
        raise UsageError(f"{pair!r} is not of the form {form}, such as {example}{whole}")
    return path, value


def parse_value(text: str) -> object:
    """Return ``text`` read as JSON, or as it is where it is no JSON."""
    from ...protocol import decode_json

    try:
        return decode_json(text)
    except ProtocolError:
        return text


def read_value(text: str, source: str) -> object:
    """Return the VALUE of ``KEY=VALUE``: JSON, or else text. ``@FILE`` stands for what a file holds, ``@@`` for a text
    that begins with ``@``. Raises :class:`~transports.errors.UsageError`, which names ``source``, for a file that
    cannot be read, is larger than 64 MB, or is no UTF-8."""
    if text.startswith("@@"):
        return text[1:]
    if text.startswith("@"):
        text = _read_text(text, source, "correct the file name, or write @@ for a text that begins with @")
    return parse_value(text)


def set_param(params: dict[str, Any], key: Sequence[str], value: object, given: set[tuple[str, ...]]) -> None:
    """Set the parameter at the path ``key``, and add the path to ``given``. Raises
    :class:`~transports.errors.UsageError` for one that would replace what was given before."""
    from ...binary.detect import set_path

    path = tuple(key)
    replaced = next((other for other in given if other[: len(path)] == path), None)
    if replaced is not None:
        name, other = ".".join(path), ".".join(replaced)
        problem = "is given twice" if name == other else f"would replace {other!r}"
        raise UsageError(f"{name!r} {problem}; give it once, or a list as JSON: -p '{name}=[1, 2]'")
    given.add(path)
    try:
        set_path(params, key, value)
    except UsageError as error:
        raise UsageError(f"{error.message} with --params") from None
