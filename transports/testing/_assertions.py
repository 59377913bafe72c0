"""Assertions about results, for tests of apps: size, schema, equality with a golden file."""

from __future__ import annotations

import difflib
import errno
import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from .._internal.arguments import validate_arguments
from .._internal.lazy import requiring_extra
from ..artifacts._ref import ArtifactRef
from ..errors import UsageError
from ..protocol._find_content import find
from ..protocol._media import sniff
from ..protocol.schema import check_output

if TYPE_CHECKING:
    from PIL.Image import Image


def assert_size(ref: ArtifactRef, exactly: int | None = None, *, at_least: int = 0, at_most: int | None = None) -> None:
    """Assert that the size of an artifact in bytes is ``exactly`` this, or between ``at_least`` and ``at_most``."""
    __tracebackhide__ = True
    size = ref.size_bytes
    if exactly is not None:
        assert size == exactly, f"{ref.filename} has {size} bytes, not exactly {exactly}"
    fits = size >= at_least and (at_most is None or size <= at_most)
    assert fits, f"{ref.filename} has {size} bytes, not at least {at_least}, at most {at_most}"


def assert_schema(data: object, schema: Mapping[str, object]) -> None:
    """Assert that ``data`` (of a result, or any JSON) fits a JSON Schema. Content in ``data`` fits any schema."""
    __tracebackhide__ = True
    faults = check_output(schema, data, [content.path for content in find(data)])
    assert not faults, "; ".join(faults)


class Golden:
    """Golden files in ``folder`` for one ``test``, as provided by the fixture ``abp_golden``.

    Pictures of differences go to the folder ``output``. With ``update``, files are written instead of compared;
    ``update`` is a folder in which all tests of a run record the files they wrote.
    """

    def __init__(self, folder: Path, *, test: str, update: Path | None, output: Path) -> None:
        self.folder = folder
        self._test = test
        self._update = update
        self._output = output

    @validate_arguments
    def check(
        self, actual: ArtifactRef | Path | bytes, name: str, *, tolerance: int = 0, differing: float = 0.0
    ) -> None:
        """Assert that ``actual`` equals the golden file ``name``.

        Images are compared pixel by pixel: each channel, 0 to 255, may differ by ``tolerance``, and a share of the
        pixels, ``differing`` from 0 to 1, by more. A picture of the difference is written. PDFs are compared by their
        text, page by page, everything else byte by byte; for texts the differing lines are shown.

        Raises :class:`AssertionError`, which names a copy of the result in the report of the test. Raises
        :class:`~transports.errors.UsageError` for an artifact without a file, and for an update that differs from the
        one by another test of this run.
        """
        __tracebackhide__ = True
        data = _read_result(actual)
        golden = self.folder / name
        if not _is_plain_name(golden, self.folder):
            raise UsageError(f"{name[:100]!r} is not a plain file name")
        if self._update is not None:
            self._write_golden(data, golden, self._update, tolerance, differing)
            return

        try:
            difference = self._describe_difference(data, golden, tolerance, differing)
        except OSError as error:
            raise UsageError(
                f"{golden} cannot be compared: {error.filename}: {error.strerror}; a result that differs is kept in "
                "the folder of --abp-output"
            ) from None
        if difference:
            advice = "if it is right, run pytest with --abp-update-golden"
            if golden.is_file():
                advice = "--abp-update-golden accepts it"
            raise AssertionError(f"{difference}; {advice}")

    def _write_golden(self, data: bytes, golden: Path, update: Path, tolerance: int, differing: float) -> None:
        """Note in the folder ``update`` that this test wrote the file. If another test has written it in this run, only
        compare."""
        __tracebackhide__ = True
        update.mkdir(parents=True, exist_ok=True)
        note = update / hashlib.sha256(os.fsencode(golden.resolve())).hexdigest()
        # A test in another process may write the same file.
        with FileLock(note.with_suffix(".lock"), timeout=60.0):
            writer = note.read_text() if note.exists() else self._test
            if writer == self._test:
                self.folder.mkdir(parents=True, exist_ok=True)
                golden.write_bytes(data)
                note.write_text(self._test)
                return

            difference = self._describe_difference(data, golden, tolerance, differing)
            if difference:
                raise UsageError(
                    f"{writer} and {self._test} have different results for one golden file; give one of them "
                    f"another name\n{difference}"
                )

    def _describe_difference(self, data: bytes, golden: Path, tolerance: int, differing: float) -> str:
        """Return an empty text if the result is equal to the golden file."""
        if not golden.is_file():
            return f"no golden file {golden}; look at the result, {self._keep_result(data, golden)}"
        expected = golden.read_bytes()
        if data == expected:
            return ""

        kind = sniff(expected[:4096]) or ""
        if kind.startswith("image/") and kind != "image/svg+xml":
            difference = self._compare_images(data, expected, golden, tolerance, differing)
        elif kind == "application/pdf":
            difference = _compare_pdfs(data, expected, golden)
        else:
            difference = _changed_lines(data, expected, golden) or _first_difference(data, expected, golden)
        if not difference:
            return ""
        return f"{difference}\nThe result is {self._keep_result(data, golden)}"

    def _keep_result(self, data: bytes, golden: Path) -> Path:
        self._output.mkdir(parents=True, exist_ok=True)
        result = self._output / f"{golden.stem}.result{golden.suffix}"
        result.write_bytes(data)
        return result

    def _compare_images(self, data: bytes, expected: bytes, golden: Path, tolerance: int, differing: float) -> str:
        with requiring_extra("Pillow", "test"):
            import PIL.Image  # noqa: F401 - the functions below need it

        try:
            golden_frames = _read_frames(expected)
        except Exception as error:  # noqa: BLE001 - Pillow raises errors of many types for broken files
            return f"the result differs from {golden}, which is not a readable image ({error})"
        try:
            frames = _read_frames(data)
        except Exception as error:  # noqa: BLE001 - as above
            return f"the result is not a readable image ({error}), unlike {golden}"
        if len(frames) != len(golden_frames):
            return f"the image has {len(frames)} frames, {golden} has {len(golden_frames)}"

        for number, (frame, golden_frame) in enumerate(zip(frames, golden_frames, strict=True), 1):
            difference = self._compare_frames(frame, golden_frame, golden, tolerance, differing)
            if difference:
                return difference if len(frames) == 1 else f"frame {number}: {difference}"
        return ""

    def _compare_frames(
        self, actual: Image, golden_image: Image, golden: Path, tolerance: int, differing: float
    ) -> str:
        """Return how two pictures differ, or an empty text. A picture of the difference is written."""
        if actual.size != golden_image.size:
            return f"the image has {actual.size} pixels, {golden} has {golden_image.size}"

        picture, count = _mark_differences(actual, golden_image, tolerance)
        pixels = actual.width * actual.height
        if count <= pixels * differing:
            return ""

        self._output.mkdir(parents=True, exist_ok=True)
        difference = self._output / f"{golden.stem}.difference.png"
        picture.save(difference)
        allowed = f"tolerance {tolerance}"
        if differing:
            allowed += f", {int(pixels * differing)} pixels may differ by more"
        return f"{count} of {pixels} pixels differ from {golden} ({allowed}); see {difference}"


def _read_frames(data: bytes) -> list[Image]:
    from PIL import Image, ImageSequence

    with Image.open(io.BytesIO(data)) as image:
        return [_as_rgba(frame) for frame in ImageSequence.Iterator(image)]


def _as_rgba(frame: Image) -> Image:
    """Pillow itself would make all greys above 255 of 65,535 white."""
    from PIL import Image

    if frame.mode.startswith("I;16"):
        frame = frame.convert("I").point(lambda grey: grey / 256).convert("L")
    elif frame.mode in ("I", "F"):
        # Of numbers without a range, each byte is compared as a channel.
        return Image.frombytes("RGBA", frame.size, frame.tobytes())
    return frame.convert("RGBA")


def _is_plain_name(path: Path, folder: Path) -> bool:
    """The file need not exist."""
    try:
        if path.resolve().parent != folder.resolve():
            return False
        # The file may not exist, but the system must take its name. Path.exists() raises nothing in Python 3.14.
        path.stat()
    except ValueError:
        return False  # a zero byte
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    return True


def _read_result(actual: ArtifactRef | Path | bytes) -> bytes:
    __tracebackhide__ = True
    if isinstance(actual, bytes):
        return actual

    path = actual if isinstance(actual, Path) else actual.path
    if path is None:
        assert isinstance(actual, ArtifactRef)
        raise UsageError(
            f"{actual.filename} ({actual.uri}) has no file here; use a store in a folder, as abp_artifacts is"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be compared: {error.strerror}") from error


def _changed_lines(data: bytes, expected: bytes, golden: Path) -> str:
    """Return an empty text if the texts are binary or too long to compare."""
    max_bytes = 200_000
    max_lines = 40
    max_width = 300
    if max(len(data), len(expected)) > max_bytes:
        return ""
    try:
        new = data.decode().splitlines()
        old = expected.decode().splitlines()
    except UnicodeDecodeError:
        return ""

    lines = [*difflib.unified_diff(old, new, str(golden), "the result", lineterm="", n=1)]
    if not lines:
        return ""

    shown = [f"the result differs from {golden}:"]
    for line in lines[:max_lines]:
        if len(line) > max_width:
            line = f"{line[:max_width]}…"
        shown.append(line)
    if len(lines) > max_lines:
        shown.append(f"… and {len(lines) - max_lines} more lines")
    return "\n".join(shown)


def _first_difference(data: bytes, expected: bytes, golden: Path) -> str:
    pairs = zip(data, expected, strict=False)
    # If one begins with the other, they differ where the shorter one ends.
    shorter = min(len(data), len(expected))
    position = next((index for index, (byte, other) in enumerate(pairs) if byte != other), shorter)
    return f"the result ({len(data)} bytes) differs from byte {position} on from the {len(expected)} bytes of {golden}"


def _mark_differences(actual: Image, golden_image: Image, tolerance: int) -> tuple[Image, int]:
    """Return the expected image, faded, with the differing pixels in a bright colour, and their number."""
    from PIL import Image, ImageChops

    # The mask is white where a channel differs by more than the tolerance.
    black, white = 0, 255
    beyond_tolerance = [white if value > tolerance else black for value in range(256)]
    mask = Image.new("L", actual.size, black)
    for channel in ImageChops.difference(actual, golden_image).split():
        mask = ImageChops.lighter(mask, channel.point(beyond_tolerance))

    # A quarter of the contrast is left, on white.
    fading = [white - (white - value) // 4 for value in range(256)]
    picture = golden_image.convert("L").point(fading).convert("RGB")
    bright_red = (255, 0, 80)
    picture.paste(bright_red, mask=mask)
    pixels_by_brightness = mask.histogram()
    return picture, pixels_by_brightness[white]


def _compare_pdfs(data: bytes, expected: bytes, golden: Path) -> str:
    """Return an empty text if the PDFs have the same texts."""
    with requiring_extra("pypdfium2", "test"):
        from pypdfium2 import PdfiumError

    try:
        golden_pages = _page_texts(expected)
    except PdfiumError as error:
        return f"the result differs from {golden}, which is not a readable PDF ({error})"
    try:
        pages = _page_texts(data)
    except PdfiumError as error:
        return f"the result is not a readable PDF ({error}), unlike {golden}"

    if len(pages) != len(golden_pages):
        return f"the PDF has {len(pages)} pages, {golden} has {len(golden_pages)}"
    for number, (actual, golden_text) in enumerate(zip(pages, golden_pages, strict=True), 1):
        if actual != golden_text:
            return f"page {number} reads {actual[:300]!r}, in {golden} {golden_text[:300]!r}"
    return ""


def _page_texts(data: bytes) -> list[str]:
    import pypdfium2

    with pypdfium2.PdfDocument(data) as document:
        return [" ".join(page.get_textpage().get_text_range().split()) for page in document]
