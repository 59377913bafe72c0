"""Program to make a thumbnail of an image.

It reads an image from stdin. To stdout it writes a line of JSON with the ``size`` of the thumbnail, the ``source`` size
(both in pixels) and the number of ``frames``, then the thumbnail. Its first argument is the maximum size in bytes.
With a second, the most pixels of a side, an image of a type that clients can show that fits both is only decoded: the
line has its ``kind``, and nothing follows. The thumbnail is PNG, or JPEG for a JPEG, which is mostly a photo.

A thumbnail is at most 800 pixels wide (docs/requirements.md R3-5), so that a long page stays readable, and has at most
four million pixels. If it has too many bytes, it is reduced to 256 colours, then to fewer pixels. An image of a type
that clients cannot show may be 1,200 pixels wide (docs/requirements.md R3-4).
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

#: Maximum width in pixels of a thumbnail.
_WIDTH = 800
#: Maximum width in pixels of an image that is only converted.
_CONVERTED_WIDTH = 1200
#: Maximum number of pixels of both.
_PIXELS = 4_000_000
#: Types that clients can show.
_SHOWN = ("PNG", "JPEG", "GIF", "WEBP")
#: Types that are converted, because clients cannot show them.
_CONVERTED = ("BMP", "TIFF", "AVIF")
#: Scales of a thumbnail, tried until the image has few enough bytes.
_SCALES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)


def main() -> int:
    """Return the exit status: 0 with an image, 1 if no size fits."""
    from PIL import Image

    warnings.simplefilter("error")
    max_bytes, *sides = map(int, sys.argv[1:])
    content = sys.stdin.buffer.read()
    with Image.open(io.BytesIO(content), formats=(*_SHOWN, *_CONVERTED)) as image:
        kind, source, frames = image.format, image.size, getattr(image, "n_frames", 1)
        picture = image.convert("RGBA" if image.has_transparency_data else "RGB")

    max_side = sides[0] if sides else max(source)
    fits = len(content) <= max_bytes and max(source) <= max_side
    if sides and kind in _SHOWN and fits:
        _write_output({"size": source, "source": source, "kind": kind}, b"")
        return 0

    for size in _candidate_sizes(*source, max_side, converted=kind in _CONVERTED):
        picture = picture.resize(size, reducing_gap=2.0)
        for data in _encoded_variants(picture, photo=kind == "JPEG"):
            if len(data) <= max_bytes:
                _write_output({"size": size, "source": source, "frames": frames}, data)
                return 0
    return 1


def _write_output(about: dict[str, object], data: bytes) -> None:
    sys.stdout.buffer.write(json.dumps(about).encode() + b"\n" + data)


def _candidate_sizes(width: int, height: int, max_side: int, *, converted: bool) -> Iterator[tuple[int, int]]:
    """Yield the sizes of a smaller picture of an image, the largest first."""
    largest = min(1.0, (_PIXELS / (width * height)) ** 0.5, max_side / max(width, height))
    thumbnail = min(largest, _WIDTH / width)
    scales = [thumbnail * part for part in _SCALES]
    if converted:
        scales.insert(0, min(largest, _CONVERTED_WIDTH / width))
    for scale in scales:
        # The summand makes up for the error of floating-point numbers.
        yield max(1, int(width * scale + 1e-6)), max(1, int(height * scale + 1e-6))


def _encoded_variants(picture: Picture, *, photo: bool) -> Iterator[bytes]:
    """Yield the image as JPEG, or as PNG, first with all its colours, then with 256."""
    from PIL.Image import Quantize

    if photo:
        yield _save_to_bytes(picture.convert("RGB"), "JPEG", quality=80)
        return
    yield _save_to_bytes(picture, "PNG", compress_level=9)
    yield _save_to_bytes(picture.quantize(method=Quantize.FASTOCTREE), "PNG", compress_level=9)


def _save_to_bytes(picture: Picture, kind: str, **options: int) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
