"""What tests of ABP apps want to say of results: the size, the schema, the same as a golden file."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..artifacts import ArtifactRef
from ..binary.detect import find
from ..binary.media import sniff
from ..errors import UsageError
from ..protocol.schema import check_output

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Golden", "assert_schema", "assert_size"]

_DIFFERENT = (255, 0, 80)
_FADED = 4


def assert_size(ref: ArtifactRef, exactly: int | None = None, *, at_least: int = 0, at_most: int | None = None) -> None:
    """The artifact has so many bytes."""
    if exactly is not None:
        at_least = at_most = exactly
    wanted = f"exactly {exactly}" if exactly is not None else f"at least {at_least}, at most {at_most}"
    fits = ref.size_bytes >= at_least and (at_most is None or ref.size_bytes <= at_most)
    assert fits, f"{ref.filename} has {ref.size_bytes} bytes, not {wanted}"


def assert_schema(data: object, schema: Mapping[str, object]) -> None:
    """``data`` (of a result, or any JSON) fits a JSON Schema; content in it counts as anything."""
    found = check_output(schema, data, [item.path for item in find(data)])
    assert not found, "; ".join(found)


class Golden:
    """Golden files in ``folder``. ``update`` writes them instead of comparing; ``kept`` is where pictures of
    differences go. The fixture ``abp_golden`` makes it."""

    def __init__(self, folder: Path, *, update: bool, kept: Path) -> None:
        self.folder, self._update, self._kept = folder, update, kept

    def check(self, actual: ArtifactRef | Path | bytes, name: str, *, tolerance: int = 0) -> None:
        """``actual`` is the same as the golden file ``name``: images pixel by pixel, each channel within ``tolerance``
        of 255 (a picture of the difference is kept); PDFs by their text, page by page; all else byte by byte.

        Raises :class:`AssertionError`, and :class:`~transports.errors.UsageError` for an artifact without a file.
        """
        data, golden = _bytes(actual), self.folder / name
        if golden.resolve().parent != self.folder.resolve():
            raise UsageError(f"{name!r} is no plain file name")
        if self._update:
            self.folder.mkdir(parents=True, exist_ok=True)
            golden.write_bytes(data)
            return
        assert golden.is_file(), f"there is no golden file {golden}; look at the result, then --abp-update-golden"
        expected = golden.read_bytes()
        if data == expected:
            return
        kind = sniff(expected[:4096]) or ""
        if kind.startswith("image/") and kind != "image/svg+xml":
            self._compare_pixels(data, expected, golden, tolerance)
        elif kind == "application/pdf":
            _compare_pages(data, expected, golden)
        else:
            raise AssertionError(f"{_first_difference(data, expected)} {golden}; --abp-update-golden accepts it")

    def _compare_pixels(self, data: bytes, expected: bytes, golden: Path, tolerance: int) -> None:
        from PIL import Image, UnidentifiedImageError

        wanted = Image.open(io.BytesIO(expected)).convert("RGBA")
        try:
            got = Image.open(io.BytesIO(data)).convert("RGBA")
        except UnidentifiedImageError:
            raise AssertionError(f"the result is no image that can be read, {golden} is one") from None
        assert got.size == wanted.size, f"the image has {got.size} pixels, {golden} has {wanted.size}"
        picture, count = _difference(got, wanted, tolerance)
        if not count:
            return
        self._kept.mkdir(parents=True, exist_ok=True)
        shown, result = (self._kept / f"{golden.stem}.{part}.png" for part in ("difference", "result"))
        picture.save(shown)
        got.save(result)
        raise AssertionError(
            f"{count} of {got.width * got.height} pixels differ from {golden} (tolerance {tolerance}); "
            f"see {shown}, and {result}"
        )


def _bytes(actual: ArtifactRef | Path | bytes) -> bytes:
    if isinstance(actual, bytes):
        return actual
    path = actual if isinstance(actual, Path) else actual.path
    if path is None:
        raise UsageError("this artifact has no file here; use a store in a folder, as abp_artifacts is")
    return path.read_bytes()


def _first_difference(data: bytes, expected: bytes) -> str:
    at = next(
        (at for at, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), min(len(data), len(expected))
    )
    return f"the result ({len(data)} bytes) differs from byte {at} on from the {len(expected)} bytes of"


def _difference(got: Image, wanted: Image, tolerance: int) -> tuple[Image, int]:
    """The wanted image, faded, with every pixel that differs in a colour of its own; and how many do."""
    from PIL import Image, ImageChops

    channels = ImageChops.difference(got, wanted).split()
    mask = Image.new("L", got.size, 0)
    for channel in channels:
        mask = ImageChops.lighter(mask, channel.point([255 * (value > tolerance) for value in range(256)]))
    faded = wanted.convert("L").point([255 - (255 - value) // _FADED for value in range(256)]).convert("RGB")
    faded.paste(_DIFFERENT, mask=mask)
    return faded, mask.histogram()[255]


def _compare_pages(data: bytes, expected: bytes, golden: Path) -> None:
    got, wanted = _texts(data), _texts(expected)
    assert len(got) == len(wanted), f"the PDF has {len(got)} pages, {golden} has {len(wanted)}"
    for number, (mine, theirs) in enumerate(zip(got, wanted, strict=True), 1):
        assert mine == theirs, f"page {number} reads {mine[:300]!r}, in {golden} {theirs[:300]!r}"


def _texts(data: bytes) -> list[str]:
    """The text of every page, its white space made even."""
    import pypdfium2

    with pypdfium2.PdfDocument(data) as document:
        return [" ".join(page.get_textpage().get_text_range().split()) for page in document]


def copied(source: Path, target: Path) -> None:
    """The files of a store, without its own bookkeeping."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir() if source.is_dir() else ():
        if file.is_file() and not file.name.startswith("."):
            shutil.copyfile(file, target / file.name)
