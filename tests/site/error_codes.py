"""The reference of errors, made from the tree of classes. The codes that modules give to single errors are written by
hand, and none may be missing."""

from __future__ import annotations

import inspect
import re
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
#: The part of the page that is written by hand.
_SINGLE = "\n## Codes of single errors\n"
_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
_PACKAGE = Path(errors.__file__).parent
#: Where a module gives a code to one error, and where a script in a page does.
_IN_MODULE = re.compile(
    r'(?:\bcode=(?:[^,()"]*? if [^,()]* else )?|"code": |RequestRefused\([^"()]*|^[A-Z_]+ = )"([A-Z]{2,}(?:_[A-Z]+)*)"',
    re.MULTILINE,
)
_IN_SCRIPT = re.compile(r'\b(?:code: ?|refused\(|refusal\(|wrong\(|failed\(|ToolError\()"([A-Z]+(?:_[A-Z]+)+)"')
#: The beginning of a docstring up to its details, its advice, and the names in it that Sphinx would link.
_SENTENCE = re.compile(r"((?:``[^`]+``|`[^`]+`|[^`])+?)(?:[.:;](?:\s|$)|\n\n|$)", re.DOTALL)
_ADVICE = re.compile(r"^What to do: (.+?)\.$", re.DOTALL | re.MULTILINE)
_ROLE = re.compile(r":\w+:`[~.]*([^`]+)`")


def errors_page() -> str:
    """Return the page: a table of the classes by their codes, and as it stands the table of the codes of single errors,
    which must have each of them."""
    codes: dict[str, list[type[ABPError]]] = {}
    for error_class in _classes():
        codes.setdefault(error_class.code, []).append(error_class)
    rows = "".join(_rows(code, codes[code]) for code in sorted(codes))
    _, _, by_hand = _PAGE.read_text(encoding="utf-8").partition(_SINGLE)
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", by_hand, re.MULTILINE))
    assert documented == codes_of_single_errors(), documented ^ codes_of_single_errors()
    return _HEAD + rows + _behaviour() + _SINGLE + by_hand


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


def codes_of_single_errors() -> set[str]:
    """Return the codes in the package that are not the code of a class."""
    found: set[str] = set()
    for path in _PACKAGE.rglob("*.py"):
        if not {"testing", "new_app", "new_tests"} & set(path.parts):
            found |= {*_IN_MODULE.findall(path.read_text(encoding="utf-8"))}
    for path in (_PACKAGE / "playwright").rglob("*.js"):
        found |= {*_IN_SCRIPT.findall(path.read_text(encoding="utf-8"))}
    return found - {error_class.code for error_class in _classes()}
