"""Program to render a page of a PDF.

It reads the PDF from stdin. To stdout it writes a line of JSON with the ``size`` of the picture in pixels and the
number of ``pages``, then the picture as PNG. The first argument is its maximum width; the maximum height is three times
that. The second is the number of the page, by default 1, the first.
"""

from __future__ import annotations

import io
import json
import sys


def main() -> int:
    """Return the exit status, 0. An unreadable PDF ends the program with an error."""
    import pypdfium2

    max_width = int(sys.argv[1])
    max_height = 3 * max_width
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    page = document[number - 1]

    width, height = (max(side, 1.0) for side in page.get_size())
    scale = min(max_width / width, max_height / height)
    picture = page.render(scale=scale).to_pil().convert("RGB")
    png = io.BytesIO()
    picture.save(png, "PNG", optimize=False)

    about = json.dumps({"size": picture.size, "pages": len(document)})
    sys.stdout.buffer.write(about.encode() + b"\n" + png.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
