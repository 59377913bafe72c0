"""Parameters from the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import ProtocolError, UsageError

__all__ = ["read_params"]


def read_params(text: str | None, pairs: Sequence[str], files: Sequence[str]) -> dict[str, object]:
    """``--params JSON|@FILE|-``, then ``-p KEY=VALUE`` (JSON where it is valid JSON, else text) and ``--file KEY=PATH``
    on top; a dot in KEY leads into an object. Raises :class:`~transports.errors.UsageError`."""
    from ...binary import BinaryData

    params = _document(text) if text else {}
    for pair in pairs:
        key, value = _split(pair, "-p KEY=VALUE")
        _put(params, key, _value(value))
    for pair in files:
        key, value = _split(pair, "--file KEY=PATH")
        _put(params, key, BinaryData.from_path(value))
    return params


def _document(text: str) -> dict[str, Any]:
    from ...messages import decode_json

    source = "--params"
    if text == "-":
        source, text = "--params - (stdin)", sys.stdin.read()
    elif text.startswith("@"):
        source = f"--params {text}"
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{source}: cannot be read: {error}") from error
    try:
        params = decode_json(text)
    except ProtocolError as error:
        reason = error.message.partition("cannot be read: ")[2]
        raise UsageError(
            f"{source} is not JSON ({reason}); quote it for the shell: --params '{{\"key\": 1}}'"
        ) from error
    if not isinstance(params, dict):
        raise UsageError(f"{source} must be a JSON object such as '{{\"key\": 1}}', not {type(params).__name__}")
    return params


def _split(pair: str, form: str) -> tuple[list[str], str]:
    key, mark, value = pair.partition("=")
    if not mark or not key:
        raise UsageError(f"{pair!r} is not of the form {form}")
    return key.split("."), value


def _value(text: str) -> object:
    from ...messages import decode_json

    try:
        return decode_json(text)
    except ProtocolError:
        return text


def _put(params: dict[str, Any], key: Sequence[str], value: object) -> None:
    for step in key[:-1]:
        params = params.setdefault(step, {})
        if not isinstance(params, dict):
            raise UsageError(f"{'.'.join(key)}: {step!r} is not an object, so nothing can be put into it")
    params[key[-1]] = value
