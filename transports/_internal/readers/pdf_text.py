"""Program to extract the text of a PDF.

It reads the PDF from stdin. To stdout it writes a line of JSON with the number of its ``pages`` and of the pages
``read``, then the text of those pages as UTF-8, at most as many characters as the first argument. A second argument is
the number of the only page to read, from 1. If there is no such page, nothing is read.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Return the exit status, 0. An unreadable PDF ends the program with an error."""
    import pypdfium2

    remaining_chars, *numbers = map(int, sys.argv[1:])
    document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    if not numbers:
        numbers = [*range(1, len(document) + 1)]

    separator = "\n\n"
    texts: list[str] = []
    for number in numbers:
        if number > len(document):
            break
        text = document[number - 1].get_textpage().get_text_bounded().replace("\r\n", "\n").strip()
        texts.append(text[:remaining_chars])
        remaining_chars -= len(text) + len(separator)
        if remaining_chars <= 0:
            break

    about = json.dumps({"pages": len(document), "read": len(texts)})
    sys.stdout.buffer.write(f"{about}\n{separator.join(texts)}".encode(errors="replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
