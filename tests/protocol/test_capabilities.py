"""Lists of capabilities without a session: read, merged, changed and compared."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from transports import CapabilityError
from transports.protocol._capabilities import (
    MAX_CAPABILITIES,
    Capabilities,
    deprecation_warnings,
    find_capability,
    is_long,
    with_suggestions,
)
from transports.protocol._declarations import Capability

ONE = {"name": "a", "description": "old", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda listed: listed,
        lambda listed: {"capabilities": listed},
        lambda listed: {"data": listed, "capabilities": ["c"]},
        lambda listed: {"data": {"capabilities": listed}},
    ],
)
def test_wrapped_capability_list_is_accepted(wrapped: Callable[[object], object]) -> None:
    known = Capabilities().merge(wrapped([ONE, "b", {"name": 5}, {"title": "a"}, 7]))
    assert [*known] == ["a", "b"] and known["a"].description == "old" and known["b"] == Capability(name="b")
    assert not is_long(wrapped(["a"] * 3000)) and is_long(wrapped(["a"] * 3001))
    for no_list in (None, 5, "a", {}, {"data": 5}, {"data": {"data": ["a"]}}):
        assert [*Capabilities().merge(no_list)] == []


def test_unknown_name_error_lists_similar_names() -> None:
    known = Capabilities().merge(["export.pdf", "save"])
    assert find_capability("Editor", "save", known) is known["save"] and known.get("x") is None
    for name, end in (("export.pfd", "; did you mean export.pdf?"), ("x", "; the app has export.pdf, save")):
        with pytest.raises(KeyError) as unknown:
            known[name]
        assert unknown.value.args == (f"unknown capability {name!r}{end}",)
    with pytest.raises(CapabilityError) as raised:
        find_capability("Editor", "export.pfd", known)
    error = raised.value
    assert (error.code, error.alternatives) == ("UNKNOWN_CAPABILITY", ("export.pdf",))
    assert error.message == error.args[0] == "Editor has no 'export.pfd'; did you mean export.pdf?"
    for others, named in ((known, "export.pdf, save"), ({}, "none")):
        with pytest.raises(CapabilityError) as raised:
            find_capability("Editor", "x", others)
        assert raised.value.message == f"Editor has no 'x'; the app has {named}"


@pytest.mark.requirement("R6-5g")
def test_capability_change_adds_removes_and_updates() -> None:
    before = Capabilities().merge([ONE, "b", "c"])
    change = {"added": ["d"], "removed": ["b", {"name": "x"}], "changed": [{"name": "a", "description": "new"}]}
    after = before.apply_change(change)
    assert [*after] == ["a", "c", "d"] and after["a"].description == "new"
    assert [*before] == ["a", "b", "c"] and before["a"].description == "old"
    difference = after.diff(before)
    assert (difference.added, difference.removed, difference.changed) == (("d",), ("b",), ("a",))
    assert [*before.apply_change(None)] == ["a", "b", "c"]
    # Later fields win, and null is a missing one.
    later = before.merge([{"name": "a", "description": "new", "inputSchema": None, "title": "A"}])["a"]
    assert (later.description, later.title, later.input_schema) == ("new", "A", {"type": "object"})


def test_manifest_does_not_override_running_app() -> None:
    running = Capabilities().merge([{"name": "a", "experimental": False, "requirements": [], "available": False}])
    declared = Capability(name="a", experimental=True, deprecated=True, available=True, features={"x": True})
    both = running.with_manifest([declared])["a"]
    assert (both.experimental, both.deprecated, both.available, both.features) == (False, True, False, {"x": True})
    # That it is listed without the field says that it is available.
    listed = Capabilities().merge(["a"]).with_manifest([Capability(name="a", available=False)])
    assert listed["a"].available is True


def test_deprecated_and_experimental_capability_warnings_are_listed() -> None:
    plain = Capability(name="a", deprecated=True)
    full = Capability(name="a", deprecated=True, deprecation_message="old", alternatives=["b", "c"], experimental=True)
    assert deprecation_warnings(Capability(name="a")) == []
    assert deprecation_warnings(plain) == ["a is deprecated"]
    assert deprecation_warnings(full) == ["a is deprecated: old; use b, c", "a is experimental and may change"]


@pytest.mark.load
def test_capabilities_over_limit_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"c{n}" for n in range(MAX_CAPABILITIES)]
    full = Capabilities().merge(names)
    assert len(full) == MAX_CAPABILITIES and not caplog.records
    assert len(Capabilities().merge([*names, "beyond", "more"])) == MAX_CAPABILITIES
    assert "left out 2 of the app's capabilities: the limit is 150,000" in caplog.text
    changed = full.apply_change({"added": ["beyond", {"name": "c0", "title": "known"}]})
    assert len(changed) == MAX_CAPABILITIES and changed["c0"].title == "known"


def test_first_5_unnamed_capabilities_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not Capabilities().merge([1, 2, 3, 4, 5, 6])
    assert [record.getMessage() for record in caplog.records] == [
        f"left out of the app's capabilities: {n} has no name" for n in range(1, 6)
    ]


@pytest.mark.parametrize(("others", "found"), [(4999, True), (5000, False)])
def test_suggestions_search_at_most_5000_names(others: int, found: bool) -> None:
    known = Capabilities().merge([*(f"n{n:040}" for n in range(others)), "export.pdf"])
    error = with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "export.pfd", known)
    assert (error.alternatives == ("export.pdf",)) is found
    assert ("did you mean export.pdf?" in error.message) is found
    error = with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "zzzzzzzz", known)
    assert ("the app has export.pdf, " in error.message) is found and error.message.count(",") == 7


def test_error_names_up_to_8_alternatives_and_3_requirements() -> None:
    other = with_suggestions(CapabilityError("no", alternatives=[f"a{n}" for n in range(9)]), "x", {})
    assert other.message == "no; instead there is a0, a1, a2, a3, a4, a5, a6, a7"
    known = Capabilities().merge([f"n{n}" for n in range(9)])
    unknown = with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "zzz", known)
    assert unknown.alternatives == ()
    assert unknown.message == "no; the app has n0, n1, n2, n3, n4, n5, n6, n7 and 1 more"
    needs = [{"description": f"r{n}", "resolution": "do it" if n else None} for n in range(4)]
    known = Capabilities().merge([{"name": "x", "requirements": [{"type": "met", "met": True}, *needs]}])
    unmet = with_suggestions(CapabilityError("no", code="REQUIREMENT_NOT_MET"), "x", known)
    assert unmet.message == "no; it needs r0; it needs r1: do it; it needs r2: do it"
