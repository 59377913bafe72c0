"""Tests of the app. Run ``pytest`` in this folder; nothing but ``pip install 'abp-transports[test]'`` is needed."""

import pytest

from transports import UsageError
from transports.sync import Session
from transports.testing import Golden, assert_size

pytestmark = pytest.mark.abp("app.html")


def test_a_badge_equals_its_golden_file(abp_app: Session, abp_golden: Golden) -> None:
    badge = abp_app.call("badge.make", {"label": "<ABP> & co"}).artifacts["badge"]
    assert badge.mime_type == "image/svg+xml"
    assert_size(badge, at_most=500)
    abp_golden.check(badge, "badge.svg")


def test_a_colour_is_checked_before_anything_is_sent(abp_app: Session) -> None:
    with pytest.raises(UsageError, match="colour"):
        abp_app.call("badge.make", {"label": "ABP", "colour": "blue"})
