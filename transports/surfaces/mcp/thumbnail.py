"""Run as a program: an image on stdin becomes one of at most 800 pixels a side on stdout, of at most as many bytes as
the argument says. Images come from apps, so this process may use little memory and time (DecompressionBomb)."""

from __future__ import annotations

import io
import sys
import warnings

_SIDE = 800
_MEMORY = 1 << 30
_SECONDS = 15


def main() -> int:
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
