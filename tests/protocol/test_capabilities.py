"""Lists of capabilities without a session: read, merged, changed and compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.rows import each_row
from transports import CapabilityError
from transports.protocol import _capabilities
from transports.protocol._capabilities import (
    Capabilities,
    deprecation_warnings,
    find_capability,
    is_long,
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


@each_row("listed", [None, 5, "a", {}, {"data": 5}, {"data": {"data": ["a"]}}])
def test_non_list_capabilities_yield_none(listed: object) -> None:
    assert [*Capabilities().merge(listed)] == []


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


def test_later_capability_fields_win_and_null_is_missing() -> None:
    known = Capabilities().merge([ONE]).merge([{"name": "a", "description": "new", "inputSchema": None, "title": "A"}])
    assert (known["a"].description, known["a"].title, known["a"].input_schema) == ("new", "A", {"type": "object"})


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


def test_capabilities_over_limit_are_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _capabilities.MAX_CAPABILITIES == 150_000
    monkeypatch.setattr(_capabilities, "MAX_CAPABILITIES", 1_000)
    names = [f"c{n}" for n in range(1_000)]
    full = Capabilities().merge(names)
    assert len(full) == 1_000 and not caplog.records
    assert len(Capabilities().merge([*names, "beyond", "more"])) == 1_000
    assert "left out 2 of the app's capabilities: the limit is 1,000" in caplog.text
    changed = full.apply_change({"added": ["beyond", {"name": "c0", "title": "known"}]})
    assert len(changed) == 1_000 and changed["c0"].title == "known"
