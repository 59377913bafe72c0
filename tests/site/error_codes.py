"""The reference of errors, made from the tree of classes."""

from __future__ import annotations

import inspect
import re

from transports import errors
from transports.errors import ABPError

__all__ = ["classes_in_full", "errors_page"]

_HEAD = """# Errors

Every error of the kit is an `ABPError`, and is imported from where a traceback says: `from transports.errors import
SizeMismatch`. Its `code` is stable, and its message says what to do next. Codes that an app answers are its own: they
arrive as `CapabilityError`. A page that asks to sign in is a `NotAbpApp` with the code `PERMISSION_REQUIRED`.

| code | raised as | may be repeated | the session goes on |
|---|---|---|---|
"""
_WHEN = """
| class | meaning |
|---|---|
"""
#: The first sentence of a docstring, and the names in it that Sphinx would link.
_SENTENCE = re.compile(r"(.+?)(?:\.(?:\s|$)|\n\n|$)", re.DOTALL)
_ROLE = re.compile(r":\w+:`[~.]*([^`]+)`")


def errors_page() -> str:
    """Return the page: a table of the codes, and one of the classes."""
    codes: dict[str, list[type[ABPError]]] = {}
    for found in _classes():
        codes.setdefault(found.code, []).append(found)
    rows = "".join(_row(code, codes[code]) for code in sorted(codes))
    return _HEAD + rows + _WHEN + "".join(f"| `{found.__name__}` | {_when(found)} |\n" for found in _classes())


def classes_in_full() -> str:
    """Return what follows on the site: each class with its docstring."""
    return "\n" + "\n\n".join(f"::: transports.errors.{found.__name__}" for found in _classes()) + "\n"


def _classes() -> list[type[ABPError]]:
    return [found for name in errors.__all__ if _is_error(found := getattr(errors, name))]


def _when(found: type[ABPError]) -> str:
    sentence = _SENTENCE.match(inspect.getdoc(found) or "")
    assert sentence, found
    return _ROLE.sub(lambda name: f"`{name[1].rpartition('.')[2]}`", " ".join(sentence[1].replace("``", "`").split()))


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, ABPError)


def _row(code: str, classes: list[type[ABPError]]) -> str:
    names = ", ".join(f"`{found.__name__}`" for found in classes)
    answers = [_yes_or_no({found.retryable for found in classes}), _yes_or_no({c.session_survives for c in classes})]
    return f"| `{code}` | {names} | {' | '.join(answers)} |\n"


def _yes_or_no(values: set[bool]) -> str:
    return "it depends" if len(values) > 1 else "yes" if values.pop() else "no"
