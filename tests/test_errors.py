"""The error tree: its drawing, its codes, its JSON form; the first line of a foreign error."""

from __future__ import annotations

import inspect
import json
import pickle
import re

import pytest

import transports
from tests.support.rows import each_row
from transports import errors
from transports.errors import (
    ABPError,
    CallTimeout,
    CapabilityError,
    Disconnected,
    NotRecorded,
    SizeMismatch,
    first_line,
    format_seconds,
    may_have_run,
)

RETRYABLE = {
    "CallTimeout",
    "Disconnected",
    "BrowserCrashed",
    "PageCrashed",
    "ContextLost",
    "ProfileInUse",
    "Truncated",
}
ENDS_THE_SESSION = {
    "BadRecording",
    "ConnectFailed",
    "BrowserNotFound",
    "NotAbpApp",
    "ProfileInUse",
    "Disconnected",
    "BrowserCrashed",
    "PageCrashed",
    "ContextLost",
}


def tree() -> dict[str, type[ABPError]]:
    return {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, ABPError)}


def test_docstring_error_tree_matches_classes_and_codes() -> None:
    """Codes are part of the API (docs/protocol.md 8.1 and ours): a change breaks somebody's program."""
    drawn: dict[str, tuple[str | None, str | None]] = {}
    parents: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if entry := re.match(r"    ([│├└─ ]*)([A-Z]\w+)(.*)", line):
            depth = len(entry[1]) // 4
            parents[depth:] = [entry[2]]
            column = re.match(r" +([A-Z_]+) {2}", entry[3])
            drawn[entry[2]] = (parents[depth - 1] if depth else None, column[1] if column else None)
    assert drawn.keys() == tree().keys()
    assert (ABPError.code, CapabilityError.code) == ("INTERNAL_ERROR", "OPERATION_FAILED")
    for name, (parent, code) in drawn.items():
        base = tree()[name].__base__
        assert parent is None or (base is not None and base.__name__ == parent), name
        if code is not None:
            assert tree()[name].code == code, name
        elif name not in ("ABPError", "CapabilityError"):  # the root, and "the app's own code"
            assert "code" not in vars(tree()[name]), name


@each_row("name", sorted(tree()))
def test_error_retryability_and_session_survival_are_stable(name: str) -> None:
    kind = tree()[name]
    assert kind.retryable is (name in RETRYABLE)
    assert kind.session_survives is (name not in ENDS_THE_SESSION)


def test_every_error_is_public() -> None:
    assert set(errors.__all__) == {*tree(), "StoredFile", "StoredPart", "first_line", "format_seconds", "no_answer"}
    assert tree().keys() <= set(dir(transports))


def test_error_str_contains_message_and_code() -> None:
    error = SizeMismatch("3 declared, 4 came")
    assert error.message == "3 declared, 4 came" and str(error) == "3 declared, 4 came [SIZE_MISMATCH]"
    assert str(NotRecorded("not asked\n-a\n+b")) == "not asked [NOT_RECORDED]\n-a\n+b"
    assert error.as_dict() == {"code": "SIZE_MISMATCH", "message": "3 declared, 4 came", "retryable": False}
    assert error.result is None


def test_as_dict_is_json_and_omits_missing_fields() -> None:
    error = CapabilityError(
        "no",
        code="RATE_LIMITED",
        retryable=True,
        retry_after=0,
        alternatives=["export.png"],
        details={"limit": 3},
    )
    expected = {
        "code": "RATE_LIMITED",
        "message": "no",
        "retryable": True,
        "retry_after": 0,
        "alternatives": ["export.png"],
        "details": {"limit": 3},
    }
    assert error.as_dict() == json.loads(json.dumps(error.as_dict())) == expected
    assert error.cancelled is False and error.alternatives == ("export.png",)


def test_error_details_are_copied() -> None:
    given_details = {"a": 1}
    error = SizeMismatch("no", details=given_details)
    error.details["b"] = 2
    out = error.as_dict()
    error.details["c"] = 3
    assert given_details == {"a": 1} and out["details"] == {"a": 1, "b": 2}


def test_instance_overrides_do_not_change_error_class() -> None:
    assert CallTimeout("x", retryable=False).retryable is False and CallTimeout.retryable is True
    assert Disconnected("x", code="GONE").code == "GONE" and Disconnected.code == "DISCONNECTED"


@each_row(
    ("seconds", "text"),
    [(30, "30 s"), (29.9985, "30 s"), (9.99961, "10 s"), (0.19996, "0.2 s"), (1.2304, "1.2 s"), (4000.2, "4000 s")],
)
def test_format_seconds_rounds_times(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("  first \nsecond"), "first"),
        (ValueError(" \n "), "ValueError"),
        (TimeoutError(), "TimeoutError"),
        ("first\nsecond", "first"),
        ("", ""),
    ],
)
def test_the_first_line_of_a_foreign_error(error: BaseException | str, line: str) -> None:
    assert first_line(error) == line


def test_error_classes_show_their_public_module() -> None:
    for name in tree():
        error = getattr(errors, name)
        assert f"{error.__module__}.{error.__qualname__}" == f"transports.errors.{name}"
    assert type(pickle.loads(pickle.dumps(SizeMismatch("wrong")))) is SizeMismatch


def test_sent_attribute_matches_details_key() -> None:
    unsent = Disconnected("gone", details={"url": "/"}, sent=False)
    assert unsent.sent is False and not may_have_run(unsent)
    assert unsent.details == unsent.as_dict()["details"] == {"url": "/", "sent": False}
    unsent.sent = None
    assert unsent.sent is None and unsent.details == {"url": "/"} and may_have_run(unsent)
    unsent.sent = True
    assert unsent.details["sent"] is True
    assert Disconnected("gone", details={"sent": False}).sent is False, "written by a transport of before"
    assert Disconnected("gone", details={"sent": "no"}).sent is None, "written by an app"
    assert Disconnected("gone").sent is None
