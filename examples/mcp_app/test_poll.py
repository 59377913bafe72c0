"""Tests of the view. Run ``pytest`` in this folder, after ``pip install 'abp-transports[mcp,test]'``."""

from collections.abc import Callable

import pytest

from transports import UsageError
from transports.sync import ArtifactStore, View
from transports.testing import Golden

OpenView = Callable[..., View]
pytestmark = pytest.mark.abp("server.py")


def test_a_click_counts_a_vote(abp_open_view: OpenView) -> None:
    view = abp_open_view("poll", {"question": "What now?"})
    assert view.frame.get_by_role("heading").inner_text() == "What now?"
    view.frame.get_by_role("button", name="tea").click()
    view.frame.get_by_role("button", name="tea: 4").wait_for()
    view.call("leader")  # the view has answered, so its host has heard all that it asked before
    assert view.model_context == {"structuredContent": {"votes": {"tea": 4, "coffee": 5}}}
    assert not view.violations and not view.warnings


def test_an_agent_uses_the_tools_of_the_view(abp_open_view: OpenView, abp_artifacts: ArtifactStore) -> None:
    view = abp_open_view("poll")
    assert view.call("leader").data == {"choice": "coffee", "votes": 5}
    file = view.call("export_votes", {"separator": ";"}).artifact()
    assert (file.filename, file.mime_type) == ("votes.csv", "text/csv")
    assert abp_artifacts.get(file) == b"choice;votes\ntea;3\ncoffee;5"
    with pytest.raises(UsageError, match="separator"):
        view.call("export_votes", {"separator": "; "})


def test_the_button_downloads_the_same(abp_open_view: OpenView, abp_artifacts: ArtifactStore) -> None:
    view = abp_open_view("poll")
    view.frame.get_by_role("button", name="Download").click()
    view.frame.get_by_text("Saved").wait_for()
    (file,) = view.files
    assert abp_artifacts.get(file) == b"choice,votes\ntea,3\ncoffee,5"


def test_it_looks_as_it_did(abp_open_view: OpenView, abp_golden: Golden) -> None:
    view = abp_open_view("poll", theme="dark", size=(320, 240))
    picture = view.screenshot(animations="disabled").artifact()
    abp_golden.check(picture, "dark.png", tolerance=8, differing=0.1)
