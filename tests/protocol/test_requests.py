"""The first request of a session, and the answer to a question for which there is no handler."""

from __future__ import annotations

import importlib.metadata

import pytest

from transports.protocol._elicitation import DECLINED, default_answer
from transports.protocol._payloads import ElicitationRequest
from transports.protocol.messages import initialize_params, package_version


def test_the_first_request_says_who_asks_and_what_is_wanted() -> None:
    assert package_version() == importlib.metadata.version("abp-transports")
    assert initialize_params() == {
        "agent": {"name": "abp-transports", "version": package_version()},
        "protocolVersion": "0.1",
        "features": {"notifications": True, "progress": True, "elicitation": True},
    }
    assert initialize_params("me", capabilities=("a", "b"))["requestedCapabilities"] == ["a", "b"]


def test_a_source_tree_that_is_not_installed_has_version_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert package_version() == "0"


@pytest.mark.parametrize(
    ("method", "params", "data"),
    [
        ("input", {"default": "x"}, {"value": "x"}),
        ("preference", {"schema": {"default": 0}}, {"value": 0}),
        ("select", {"default": "a", "schema": {"default": "b"}}, {"selected": "a"}),
        ("confirm", {"default": True}, {"confirmed": True}),
        ("confirm", {"default": False, "destructive": True}, {"confirmed": False}),
        ("input", {"default": "x", "destructive": True}, {"value": "x"}),
        ("confirm", {"default": True, "destructive": True}, None),
        ("confirm", {"default": True, "schema": {"destructive": True}}, None),
        ("confirm", {"default": "yes", "destructive": True}, None),
        ("input", {}, None),
        ("input", {"default": None, "schema": "x"}, None),
        ("file", {"default": "x"}, None),
    ],
)
def test_the_apps_own_default_answers(method: str, params: dict[str, object], data: object) -> None:
    answer = default_answer(ElicitationRequest(method=f"elicitation/{method}", params=params))
    assert answer == (DECLINED if data is None else {"success": True, "data": data})
    assert DECLINED == {"success": False, "cancelled": True}
