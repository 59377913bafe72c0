"""The reference of errors, made from the tree of classes."""

from __future__ import annotations

import inspect

from transports import errors
from transports.errors import ABPError

__all__ = ["errors_page"]

_HEAD = """# Errors

Every error of the kit is an [`ABPError`][transports.errors.ABPError]. Its `code` is stable, and its message says
what to do next. Codes that an app answers are its own:
they arrive as [`CapabilityError`][transports.errors.CapabilityError].

| code | raised as | may be repeated | the session goes on |
|---|---|---|---|
"""


def errors_page() -> str:
    """Return the page: a table of the codes, then each class with its docstring."""
    classes = [found for name in errors.__all__ if _is_error(found := getattr(errors, name))]
    codes: dict[str, list[type[ABPError]]] = {}
    for found in classes:
        codes.setdefault(found.code, []).append(found)
    rows = "".join(_row(code, codes[code]) for code in sorted(codes))
    return _HEAD + rows + "\n" + "\n\n".join(f"::: transports.errors.{found.__name__}" for found in classes) + "\n"


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, ABPError)


def _row(code: str, classes: list[type[ABPError]]) -> str:
    names = ", ".join(f"[`{found.__name__}`][transports.errors.{found.__name__}]" for found in classes)
    answers = [_yes_or_no({found.retryable for found in classes}), _yes_or_no({c.session_survives for c in classes})]
    return f"| `{code}` | {names} | {' | '.join(answers)} |\n"


def _yes_or_no(values: set[bool]) -> str:
    return "it depends" if len(values) > 1 else "yes" if values.pop() else "no"
