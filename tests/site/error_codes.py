"""The reference of errors, made from the tree of classes, and from the codes that the modules give to single errors."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from transports import errors
from transports.errors import ABPError

__all__ = ["classes_in_full", "codes_of_single_errors", "errors_page"]

_HEAD = """# Errors

Every error of the kit is an `ABPError`, and is imported by its name: `from transports import SizeMismatch`. Its
`code` is stable, and its message says what to do next. Codes that an app answers are its own: they arrive as
`CapabilityError`. A page that asks to sign in is a `NotAbpApp` with the code `PERMISSION_REQUIRED`.

| code | raised as | may be repeated | the session goes on |
|---|---|---|---|
"""
_SINGLE = """
Single errors have a code of their own, which says more than that of their class:

| code | raised as | meaning |
|---|---|---|
"""
#: The meaning of each code that is not the code of a class.
_MEANINGS: Mapping[str, str] = {
    "ADDRESS_UNAVAILABLE": "a server cannot listen at its port or address: another program does, or it is not allowed",
    "CALL_ELSEWHERE": "a detached call belongs to another server, which alone can cancel it",
    "CALL_EXPIRED": "the answer of a detached call was kept for its time and is gone; its files are not",
    "CALL_NOT_FOUND": "no detached call has this id, or it is another user's",
    "CANCELLED": "the call was cancelled, or the command was ended by a signal",
    "INSUFFICIENT_SCOPE": "the token for the bridge lacks a scope; the message names it",
    "INVALID_ANSWER": "the answer to a question of the app does not fit what it asked for",
    "INVALID_TYPE": "a parameter is of another type than the schema says; the app of an adapter tells it",
    "LIMIT_REACHED": "a limit is reached, such as of connected apps, running calls or requests; end one first",
    "MISSING_PARAM": "a required parameter is missing; the app of an adapter tells it",
    "NOT_FOUND": "there is no such app, run, page or tool, or it is another user's",
    "NOT_INITIALIZED": "no app is connected yet",
    "OUT_OF_MEMORY": "the memory of the machine is short, so a pool opens no more sessions until others end",
    "PERMISSION_DENIED": "the user, the job or the token may not do this; an operator may allow it",
    "PERMISSION_REQUIRED": "the page asks to sign in, or the token or a setting for it is missing or wrong",
    "RATE_LIMITED": "too many requests at once; try again later",
    "SESSION_EXPIRED": "the session of an agent was idle for too long; it begins a new one",
    "SESSION_INVALID": "no connected app has this session; the message lists those that there are",
    "UNKNOWN_CAPABILITY": "the app has no capability of this name; the message names the nearest",
}
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
    single = codes_of_single_errors()
    assert single.keys() == _MEANINGS.keys(), single.keys() ^ _MEANINGS.keys()
    more = "".join(f"| `{code}` | {_shown(single[code])} | {_MEANINGS[code]} |\n" for code in sorted(single))
    return (
        _HEAD
        + rows
        + _SINGLE
        + more
        + _WHEN
        + "".join(f"| `{found.__name__}` | {_when(found)} |\n" for found in _classes())
    )


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


_PACKAGE = Path(errors.__file__).parents[1]
_CODE = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)*")
#: Where the scripts in a page name a code.
_IN_SCRIPT = re.compile(r"\b(?:code: ?|refused\(|refusal\(|wrong\(|failed\(|ToolError\()\"([A-Z]+(?:_[A-Z]+)+)\"")


@cache
def codes_of_single_errors() -> Mapping[str, frozenset[str]]:
    """Return the codes in the package that are not the code of a class, with what they are given to: classes of errors,
    ``RequestRefused`` of the web server, and scripts in a page (``""``)."""
    found: dict[str, set[str]] = {}
    for path in _PACKAGE.rglob("*.py"):
        if not {"testing", "new_app", "new_tests"} & set(path.parts):
            for code, given in _given(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(code, set()).add(given)
    for path in (_PACKAGE / "browser").rglob("*.js"):
        for code in _IN_SCRIPT.findall(path.read_text(encoding="utf-8")):
            found.setdefault(code, set()).add("")
    own = {one.code for one in _classes()}
    return {code: frozenset(given) for code, given in found.items() if code not in own}


def _given(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each code that a module gives to an error, and what it is given to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _CODE.fullmatch(_text(node.value)):
            if any(isinstance(name, ast.Name) and name.id == _text(node.value) for name in node.targets):
                yield _text(node.value), "UsageError"  # INVALID_ANSWER = "INVALID_ANSWER", used by its name
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and _text(key) == "code" and _CODE.fullmatch(_text(value)):
                    yield _text(value), ""
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [one.value for one in node.keywords if one.arg == "code"]
            given += node.args[:2] if name in ("RequestRefused", "print_error") else []
            for value in given:
                if _CODE.fullmatch(_text(value)):
                    yield _text(value), name


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _shown(given: frozenset[str]) -> str:
    """Return classes of errors by name; others are answers of the web server or of an app."""
    names = sorted(name for name in given if name in errors.__all__)
    web = ["an answer of the web server"] * ("RequestRefused" in given)
    app = ["`CapabilityError`"] * (not given & {*errors.__all__, "RequestRefused"})
    return ", ".join([*(f"`{name}`" for name in names), *web, *app])
