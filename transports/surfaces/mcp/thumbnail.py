"""A program that makes a thumbnail: it reads an image from stdin and writes one of at most 800 pixels a side to stdout,
in at most as many bytes as its argument says.

Images come from apps and may be decompression bombs, so this process limits its own memory and processor time.
"""

from __future__ import annotations

import io
import sys
import warnings

#: Pixels a side, bytes of address space, and seconds of processor time.
_SIDE, _MEMORY, _SECONDS = 800, 1 << 30, 15


def main() -> int:
    """Return the exit status: 0 with a thumbnail, 1 if none of any size fits."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    from PIL import Image

    warnings.simplefilter("error")
    limit = int(sys.argv[1])
    with Image.open(io.BytesIO(sys.stdin.buffer.read()), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
        image.thumbnail((_SIDE, _SIDE))
        clear = image.has_transparency_data
        picture = image.convert("RGBA" if clear else "RGB")
    for side in (_SIDE, _SIDE // 2, _SIDE // 4):
        picture.thumbnail((side, side))
        for kind, options in (("PNG", {"optimize": True}), ("JPEG", {"quality": 80})):
            out = io.BytesIO()
            (picture if kind == "PNG" else picture.convert("RGB")).save(out, kind, **options)
            if out.tell() <= limit:
                sys.stdout.buffer.write(out.getvalue())
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
