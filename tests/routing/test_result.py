"""One reference out of a result: ``Result.artifact``."""

from pathlib import Path

import pytest

from transports import JSONValue, LocalStore, Router
from transports.errors import SizeMismatch, UsageError
from transports.protocol.binary import BinaryData
from transports.routing import Result

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@pytest.fixture
def router(tmp_path: Path) -> Router:
    return Router(LocalStore(tmp_path))


@pytest.mark.parametrize("rows", [1, 5000])
async def test_artifact_is_found_regardless_of_other_data_size(router: Router, rows: int) -> None:
    result = await router.route({"image": PNG, "note": "x" * 4 * rows, "rows": [*range(rows)]}, capability="x")
    assert len(result.artifacts) == (1 if rows == 1 else 3)
    assert result.artifact() is result.artifacts["image"] is result.artifact("image")
    plain = await router.route({"note": "x" * 4 * rows, "rows": [*range(rows)]}, capability="x")
    assert plain.artifact() is plain.artifacts[""] is plain.artifact("")


async def test_ambiguous_artifact_error_names_places(router: Router) -> None:
    result = await router.route({"pages": [PNG, PNG + b"2"]}, capability="export.pages")
    with pytest.raises(UsageError) as caught:
        result.artifact()
    assert caught.value.message == (
        "export.pages: there are 2 artifacts; name one by its place; places with an artifact: 'pages.0', 'pages.1'"
    )
    assert caught.value.details == {"places": ["pages.0", "pages.1"]}
    assert result.artifact("pages.1") is result.artifacts["pages.1"]


@pytest.mark.parametrize("field", ["9" * 5000, "٠", "00", "1"])
def test_field_that_is_no_place_of_data_is_ignored(field: str) -> None:
    data: JSONValue = [{"uri": "artifact://a"}]
    result = Result("x", data, {}, inline_fields=frozenset({field}))
    assert result.without_keys({"uri"}).data == data


async def test_result_without_stored_files_has_no_artifact(router: Router) -> None:
    with pytest.raises(SizeMismatch) as caught:
        await router.route({"image": BinaryData(PNG, size=1)}, capability="x")
    result = caught.value.result
    assert isinstance(result, Result)
    with pytest.raises(UsageError, match="there is none; places with an artifact: none"):
        result.artifact()
