"""Programs that read a file of an app from stdin: a page of a PDF, its text, a small picture of an image.

:mod:`transports._internal.readers` runs this file in a process of its own. Its arguments are the name of a program, its
limit of CPU time in seconds, and the program's own numbers. Each program writes a line of JSON, then its content. A
file that cannot be read ends the process with an error.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


def main() -> int:
    name, *numbers = sys.argv[1:]
    cpu_seconds, *arguments = map(int, numbers)
    _limit_process(cpu_seconds)
    return _PROGRAMS[name](*arguments)


def _limit_process(cpu_seconds: int) -> None:
    """Limit the memory and the CPU time of this process, since a file of an app may attack its reader. Windows has no
    such limits; there only the caller's deadline protects."""
    max_memory = 1 << 30
    with suppress(ImportError):
        import resource

        # macOS does not limit address space.
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))


def _write_output(about: dict[str, object], content: bytes) -> None:
    """Write a line of JSON, then the content."""
    sys.stdout.buffer.write(json.dumps(about).encode() + b"\n" + content)


def pdf_page(max_width: int, number: int = 1) -> int:
    """Write the ``size`` of the picture in pixels and the number of ``pages``, then page ``number`` as PNG."""
    import pypdfium2

    max_height = 3 * max_width
    document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    page = document[number - 1]

    width, height = (max(side, 1.0) for side in page.get_size())
    scale = min(max_width / width, max_height / height)
    picture = page.render(scale=scale).to_pil().convert("RGB")
    png = io.BytesIO()
    picture.save(png, "PNG", optimize=False)

    _write_output({"size": picture.size, "pages": len(document)}, png.getvalue())
    return 0


def pdf_text(max_chars: int, number: int | None = None) -> int:
    """Write the number of ``pages`` and the number of pages ``read``, then their text as UTF-8. With ``number``,
    counted from 1, only that page is read; if the document does not have it, nothing is read."""
    import pypdfium2

    document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    numbers = range(1, len(document) + 1) if number is None else [number]
    remaining_chars = max_chars

    separator = "\n\n"
    texts: list[str] = []
    for page_number in numbers:
        if page_number > len(document):
            break
        text = document[page_number - 1].get_textpage().get_text_bounded().replace("\r\n", "\n").strip()
        texts.append(text[:remaining_chars])
        remaining_chars -= len(text) + len(separator)
        if remaining_chars <= 0:
            break

    _write_output({"pages": len(document), "read": len(texts)}, separator.join(texts).encode(errors="replace"))
    return 0


#: Types that clients can show.
_SHOWN = ("PNG", "JPEG", "GIF", "WEBP")
#: Types that are converted, because clients cannot show them.
_CONVERTED = ("BMP", "TIFF", "AVIF")


def thumbnail(max_bytes: int, max_side: int | None = None) -> int:
    """Write a line with the ``size`` of the thumbnail, the size of its ``source`` (both in pixels) and the number of
    ``frames``, then the thumbnail: PNG, or JPEG for a JPEG, which is mostly a photo. Return 1 if no size fits.

    A thumbnail is at most 800 pixels wide (docs/requirements.md R3-5), so that a long page stays readable, and has at
    most four million pixels. If it has more than ``max_bytes``, it is reduced to 256 colours, then to fewer pixels. An
    image of a type that clients cannot show may be 1,200 pixels wide (docs/requirements.md R3-4).

    With ``max_side``, no thumbnail is made of an image that clients can show and that fits both limits. It is only
    decoded, as a check: the line has its ``kind``, and nothing follows.
    """
    from PIL import Image

    warnings.simplefilter("error")
    content = sys.stdin.buffer.read()
    with Image.open(io.BytesIO(content), formats=(*_SHOWN, *_CONVERTED)) as image:
        kind, source, frames = image.format, image.size, getattr(image, "n_frames", 1)
        picture = image.convert("RGBA" if image.has_transparency_data else "RGB")

    if max_side is None:
        max_side = max(source)
    elif kind in _SHOWN and len(content) <= max_bytes and max(source) <= max_side:
        _write_output({"size": source, "source": source, "kind": kind}, b"")
        return 0

    for size in _candidate_sizes(*source, max_side, converted=kind in _CONVERTED):
        # Each size is made from the larger one before it, not from the source, which takes less time.
        picture = picture.resize(size, reducing_gap=2.0)
        for data in _encoded_variants(picture, photo=kind == "JPEG"):
            if len(data) <= max_bytes:
                _write_output({"size": size, "source": source, "frames": frames}, data)
                return 0
    return 1


def _candidate_sizes(width: int, height: int, max_side: int, *, converted: bool) -> Iterator[tuple[int, int]]:
    """Yield possible sizes of a thumbnail, the largest first. A ``converted`` image may be wider, because its original
    cannot be shown."""
    max_pixels = 4_000_000
    max_width = 800
    max_converted_width = 1200
    largest_scale = min(1.0, (max_pixels / (width * height)) ** 0.5, max_side / max(width, height))
    thumbnail_scale = min(largest_scale, max_width / width)
    scales = [thumbnail_scale * part for part in (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)]
    if converted:
        scales.insert(0, min(largest_scale, max_converted_width / width))
    rounding_error = 1e-6  # so that int() does not round 799.9999999 down to 799
    for scale in scales:
        yield max(1, int(width * scale + rounding_error)), max(1, int(height * scale + rounding_error))


def _encoded_variants(picture: Picture, *, photo: bool) -> Iterator[bytes]:
    """Yield the picture as a file, with the best quality first: a photo as JPEG, others as PNG, then with 256
    colours."""
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


_PROGRAMS: Mapping[str, Callable[..., int]] = {"pdf_page": pdf_page, "pdf_text": pdf_text, "thumbnail": thumbnail}

if __name__ == "__main__":
    sys.exit(main())
