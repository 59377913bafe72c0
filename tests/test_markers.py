"""The markers that name tests on a page are read from their source, and none on a test that may not run counts."""

from pathlib import Path

import pytest

from tests.support.faults import PAGE as FAULTS
from tests.support.markers import Page
from tests.support.requirements import PAGE as REQUIREMENTS


@pytest.mark.load
@pytest.mark.parametrize("page", [REQUIREMENTS, FAULTS], ids=lambda page: page.marker)
def test_a_page_is_what_the_markers_make_of_it(page: Page) -> None:
    assert page.check() == [], f"run: python -m tests.support.{page.path.stem}"


def test_markers_are_read_from_functions_classes_modules_and_parameters(tmp_path: Path) -> None:
    mark = "pytest.mark.requirement"
    (tmp_path / "test_a.py").write_text(
        f"pytestmark = [pytest.mark.browser, {mark}('R9-1a')]\n"
        f"@{mark}('R9-1b', 'R9-1c')\nasync def test_one(): ...\n"
        f"@pytest.mark.parametrize('x', [1, pytest.param(2, marks={mark}('R9-1d'))])\ndef test_two(x): ...\n"
        f"@{mark}('R9-1e')\nclass TestMany:\n    @{mark}('R9-1e')\n    def test_three(self): ...\n"
        f"@pytest.mark.skipif(True, reason='needs root')\n@{mark}('R9-1f')\ndef test_four(): ...\n"
    )
    assert REQUIREMENTS.marked(tmp_path) == {
        "R9-1a": ["test_a.py"],
        "R9-1b": ["test_a.py::test_one"],
        "R9-1c": ["test_a.py::test_one"],
        "R9-1d": ["test_a.py::test_two"],
        "R9-1e": ["test_a.py::TestMany", "test_a.py::TestMany::test_three"],
        "R9-1f": ["test_a.py::test_four"],
    }


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("@pytest.mark.fault(NAME)\ndef test_one(): ...", "is written out"),
        ("@pytest.mark.fault('1')\ndef test_one(): ...", "is written out"),
        ("@pytest.mark.fault(True)\ndef test_one(): ...", "is written out"),
        ("@pytest.mark.fault()\ndef test_one(): ...", "has ids and nothing else"),
        ("@pytest.mark.fault(1)\ndef helper(): ...", "stands on no test"),
        ("@pytest.mark.fault(1)\nclass Many:\n    def test_one(self): ...", "stands on no test"),
        ("MARK = pytest.mark.fault(1)", "stands on no test"),
        ("def test_one():\n    @pytest.mark.fault(1)\n    def test_inner(): ...", "stands on no test"),
        ("@pytest.mark.xfail\n@pytest.mark.fault(1)\ndef test_one(): ...", "does not always run"),
        ("@pytest.mark.skipif(BUSY, reason='busy')\n@pytest.mark.fault(1)\ndef test_one(): ...", "does not always run"),
        ("@pytest.mark.skipif(BUSY)\n@pytest.mark.fault(1)\ndef test_one(): ...", "does not always run"),
        ("pytestmark = pytest.mark.skip\n@pytest.mark.fault(1)\ndef test_one(): ...", "does not always run"),
        ("@pytest.mark.skip\nclass TestA:\n    @pytest.mark.fault(1)\n    def test_one(self): ...", "not always run"),
        ("@pytest.mark.fault(1)\ndef test_one():\n    pytest.skip('later')", "never runs"),
    ],
)
def test_a_marker_that_cannot_be_read_or_shows_nothing_is_refused(tmp_path: Path, source: str, fault: str) -> None:
    (tmp_path / "test_a.py").write_text(source)
    with pytest.raises(ValueError, match=fault):
        FAULTS.marked(tmp_path)
