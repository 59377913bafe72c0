"""A program that makes a picture of a PDF's first page: it reads the PDF from stdin and writes a line of JSON to
stdout, with the ``size`` of the picture that follows (pixels) and the number of ``pages``; then the picture as PNG, at
most as many pixels wide as the argument says, and three times as high.

PDFs come from apps and may be made to hurt, so this process limits its own memory and processor time.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress

#: Bytes of address space, and seconds of processor time.
_MEMORY, _SECONDS = 1 << 30, 10


def main() -> int:
    """Return the exit status, 0. A PDF that cannot be read ends the program with an error."""
    with suppress(ImportError):  # Windows: there the caller's deadline is the only limit
        import resource

        with suppress(ValueError):  # macOS limits no address space
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    import pypdfium2

    limit = int(sys.argv[1])
    document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    page = document[0]
    width, height = (max(side, 1.0) for side in page.get_size())
    picture = page.render(scale=min(limit / width, 3 * limit / height)).to_pil().convert("RGB")
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=False)
    about = json.dumps({"size": picture.size, "pages": len(document)})
    sys.stdout.buffer.write(about.encode() + b"\n" + out.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
