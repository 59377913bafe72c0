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

_HEAD = """# Errors

Every error is an `ABPError`, imported by its name: `from transports import SizeMismatch`. Its `code` is stable, and its
message says what to do next. Codes of an app arrive as `CapabilityError`.

| code | raised as | what to do |
|---|---|---|
"""
_REPEATING = """
## May I call again?

- `error.sent` is `False`: yes, the app never got the call.
- `CallTimeout`, `OutcomeUnknown`, `Disconnected` or a subclass of it otherwise: the call may have run. Look at the app
  first. With `idempotent=True` the kit repeats a call after `Disconnected`, if the transport reconnects and time is
  left. It never repeats after `OutcomeUnknown`; after a `CallTimeout` no time is left.
- Any other error: the app has answered, or the call was refused here. The same call may succeed if `error.retryable`,
  after `error.retry_after` seconds.
"""
_SINGLE = """
## Codes of single errors

Some errors have a code that says more than their class:

| code | raised as | what to do |
|---|---|---|
"""


#: The meaning of each code that is not the code of a class, and what to do.
_SINGLES: Mapping[str, tuple[str, str]] = {
    "ADDRESS_UNAVAILABLE": (
        "a server cannot listen at its port or address",
        "end the program that uses it, or name another port; 0 takes a free one",
    ),
    "CALL_ELSEWHERE": (
        "a detached call belongs to another server",
        "cancel it with `--server URL` of that server",
    ),
    "CALL_EXPIRED": (
        "the answer of a detached call is no longer kept; its files are",
        "find them with `abp artifacts list`, or call again",
    ),
    "CALL_NOT_FOUND": (
        "no detached call of this user has this id",
        "look the id up with `abp calls list`",
    ),
    "CANCELLED": (
        "the call was cancelled, or a signal ended the command",
        "call again if the cancellation was a mistake; the app may have done the work",
    ),
    "INSUFFICIENT_SCOPE": (
        "the token for the bridge lacks a scope",
        "get a token with the scope that the message names",
    ),
    "INVALID_ANSWER": (
        "the answer to a question of the app does not fit",
        "correct `on_elicitation=`; the message names the fault",
    ),
    "INVALID_TYPE": (
        "the app of an adapter got a parameter of a wrong type",
        "correct the parameter; `abp capabilities URL NAME` shows the schema",
    ),
    "LIMIT_REACHED": (
        "too many connected apps, running calls or requests",
        "end one, or wait until one ends",
    ),
    "MISSING_PARAM": (
        "the app of an adapter got no value for a required parameter",
        "add the parameter; `abp capabilities URL NAME` shows the schema",
    ),
    "NOT_FOUND": (
        "the user has no such app, run, page or tool",
        "correct the name or the address; the message lists the others where it may",
    ),
    "NOT_INITIALIZED": (
        "no app is connected",
        "connect one with `abp_connect`",
    ),
    "OUT_OF_MEMORY": (
        "memory is short, so a pool opens no more sessions",
        "end other programs, or lower `min_free_memory=` of the pool",
    ),
    "PERMISSION_DENIED": (
        "the user, the job or the token may not do this",
        "ask the operator to allow it; the message names the option",
    ),
    "PERMISSION_REQUIRED": (
        "the page asks to sign in, or a token or its setting is missing or wrong",
        "sign in with `abp login NAME`, or correct the token or the setting",
    ),
    "RATE_LIMITED": (
        "too many requests at once",
        "try again later",
    ),
    "SESSION_EXPIRED": (
        "the session of an agent was idle for too long",
        "start a new session",
    ),
    "SESSION_INVALID": (
        "no connected app has this session",
        "name a session that the message lists, or connect again",
    ),
    "UNKNOWN_CAPABILITY": (
        "the app has no capability of this name",
        "use the name that the message suggests, or one of `abp capabilities URL`",
    ),
}
#: The beginning of a docstring up to its details, its advice, and the names in it that Sphinx would link.
_SENTENCE = re.compile(r"((?:``[^`]+``|`[^`]+`|[^`])+?)(?:[.:;](?:\s|$)|\n\n|$)", re.DOTALL)
_ADVICE = re.compile(r"^What to do: (.+?)\.$", re.DOTALL | re.MULTILINE)
_ROLE = re.compile(r":\w+:`[~.]*([^`]+)`")


def errors_page() -> str:
    """Return the page: a table of the classes by their codes, and one of the codes of single errors."""
    codes: dict[str, list[type[ABPError]]] = {}
    for error_class in _classes():
        codes.setdefault(error_class.code, []).append(error_class)
    rows = "".join(_rows(code, codes[code]) for code in sorted(codes))
    single = codes_of_single_errors()
    assert single.keys() == _SINGLES.keys(), single.keys() ^ _SINGLES.keys()
    more = "".join(f"| `{code}` | {_shown(single[code])}: {' | '.join(_SINGLES[code])} |\n" for code in sorted(single))
    return _HEAD + rows + _behaviour() + _SINGLE + more


def classes_in_full() -> str:
    """Return what follows on the site: each class with its docstring."""
    return "\n" + "\n\n".join(f"::: transports.errors.{found.__name__}" for found in _classes()) + "\n"


def _classes() -> list[type[ABPError]]:
    return [found for name in errors.__all__ if _is_error(found := getattr(errors, name))]


def _behaviour() -> str:
    """Return which errors may be repeated, and which end the session."""
    retryable = ", ".join(f"`{error_class.__name__}`" for error_class in _classes() if error_class.retryable)
    ends = ", ".join(f"`{error_class.__name__}`" for error_class in _classes() if not error_class.session_survives)
    return (
        f"{_REPEATING}\n"
        f"The same call may succeed later (`retryable`) after {retryable}; after others, if the error says so."
        f"\nThe session ends (`session_survives` is false) with {ends}; after others it goes on.\n"
    )


def _rows(code: str, classes: list[type[ABPError]]) -> str:
    """Return a row for each class; the first one has the code."""
    first_cells = [f"`{code}`", *[""] * (len(classes) - 1)]
    return "".join(
        f"| {cell} | `{error_class.__name__}`: {_meaning(error_class)} | {_part(error_class, _ADVICE)} |\n"
        for cell, error_class in zip(first_cells, classes, strict=True)
    )


def _meaning(error_class: type[ABPError]) -> str:
    sentence = _part(error_class, _SENTENCE).removeprefix("Raised ")
    return sentence[0].lower() + sentence[1:]


def _part(error_class: type[ABPError], pattern: re.Pattern[str]) -> str:
    """Return the part of the docstring that ``pattern`` captures, as Markdown in one line."""
    part = pattern.search(inspect.getdoc(error_class) or "")
    assert part, f"the docstring of {error_class.__name__} has no {pattern.pattern}"
    return _ROLE.sub(lambda name: f"`{name[1].rpartition('.')[2]}`", " ".join(part[1].replace("``", "`").split()))


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, ABPError)


_PACKAGE = Path(errors.__file__).parent
_CODE = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)*")
#: A module without one names no code, and need not be parsed.
_CODES = re.compile(rf"[\"']{_CODE.pattern}[\"']")
#: Where the scripts in a page name a code.
_IN_SCRIPT = re.compile(r"\b(?:code: ?|refused\(|refusal\(|wrong\(|failed\(|ToolError\()\"([A-Z]+(?:_[A-Z]+)+)\"")


@cache
def codes_of_single_errors() -> Mapping[str, frozenset[str]]:
    """Return the codes in the package that are not the code of a class, with what they are given to: classes of errors,
    ``RequestRefused`` of the web server, and scripts in a page (``""``)."""
    found: dict[str, set[str]] = {}
    for path in _PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if _CODES.search(text) and not {"testing", "new_app", "new_tests"} & set(path.parts):
            for code, given in _given(ast.parse(text)):
                found.setdefault(code, set()).add(given)
    for path in (_PACKAGE / "playwright").rglob("*.js"):
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
            given += node.args[:2] if name == "RequestRefused" else []
            for value in given:
                if _CODE.fullmatch(_text(value)):
                    yield _text(value), name


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _shown(given: frozenset[str]) -> str:
    """Return classes of errors by name; others come from the web server or from an app."""
    names = sorted(name for name in given if name in errors.__all__)
    web = ["the web server"] * ("RequestRefused" in given)
    app = ["`CapabilityError`"] * (not given & {*errors.__all__, "RequestRefused"})
    return ", ".join([*(f"`{name}`" for name in names), *web, *app])
