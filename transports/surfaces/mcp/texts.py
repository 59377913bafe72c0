"""The beginning of files that a model can read, inside tool results: text, SVG, and the text of a PDF
(docs/requirements.md R3-4, R3-6)."""

from __future__ import annotations

import codecs
import importlib.util
from collections.abc import Sequence

from ...artifacts import ArtifactRef, ArtifactStore
from ...errors import ABPError, UsageError
from ...routing import is_textual
from ..shared.reader_process import MAX_SOURCE, run_reader

__all__ = ["document_text", "read_texts"]

_PDF, _SVG = "application/pdf", "image/svg+xml"
#: Files of one result, characters of a text, and of an SVG or PDF, which a model could not look at otherwise.
_MAX_FILES, _MAX_TEXT, _MAX_DOCUMENT = 4, 500, 4000
#: Characters of a PDF that are read at most.
_MAX_ALL = 10_000_000


async def read_texts(refs: Sequence[ArtifactRef], store: ArtifactStore, max_chars: int) -> list[str]:
    """Return the beginning of the first four files that are text, SVG or PDF, each below a line that names it;
    ``max_chars`` at most together."""
    texts: list[str] = []
    for ref in [ref for ref in refs if ref.mime_type == _PDF or is_textual(ref.mime_type)][:_MAX_FILES]:
        limit = min(max_chars, _MAX_DOCUMENT if ref.mime_type in (_PDF, _SVG) else _MAX_TEXT)
        try:
            text = await (_pdf(ref, store, limit) if ref.mime_type == _PDF else _head(ref, store, limit))
        except ABPError:  # removed meanwhile, or damaged: the result has its reference all the same
            continue
        if text:
            texts.append(text)
            max_chars -= len(text)
        if max_chars <= 0:
            break
    return texts


async def document_text(ref: ArtifactRef, store: ArtifactStore) -> str:
    """Return the text of a PDF, at most ten million characters of it.

    Raises :class:`~transports.errors.UsageError` for another type, a PDF that cannot be read or has more than 64 MiB,
    and without pypdfium2, and what the store raises."""
    if ref.mime_type != _PDF or ref.size_bytes > MAX_SOURCE:
        raise UsageError(f"text: {ref.filename} is no PDF of at most {MAX_SOURCE:,} bytes; read it without `text`")
    made = await run_reader("pdf_text", await store.get(ref.id), _MAX_ALL)
    if made is None:
        missing = importlib.util.find_spec("pypdfium2") is None
        reason = "pypdfium2 is needed: pip install 'abp-transports[pdf]'" if missing else "it cannot be read"
        raise UsageError(f"text: {ref.filename}: {reason}")
    return made[1].decode()


async def _head(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    data = await store.get(ref.id, offset=0, length=4 * limit)  # a character has at most four bytes
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == ref.size_bytes)
    except UnicodeDecodeError:
        return ""
    if len(text) <= limit and len(data) == ref.size_bytes:
        return f"{ref.filename}:\n{text}"
    return f"{ref.filename} begins:\n{text[:limit]}\n… (truncated; {ref.size_bytes:,} bytes in all)"


async def _pdf(ref: ArtifactRef, store: ArtifactStore, limit: int) -> str:
    if importlib.util.find_spec("pypdfium2") is None:
        return f"The text of {ref.filename} needs pypdfium2: pip install 'abp-transports[pdf]'"
    if ref.size_bytes > MAX_SOURCE or (made := await run_reader("pdf_text", await store.get(ref.id), limit)) is None:
        return ""
    about, data = made
    text, pages = data.decode(), about["pages"]
    if not text.strip():
        return f"{ref.filename} has {pages} pages and no text in the first {about['read']}"
    whole = about["read"] == pages and len(text) < limit
    end = "" if whole else f"\n… (truncated; {pages} pages in all)"
    return f"Text of {ref.filename}{'' if whole else ', from its beginning'}:\n{text}{end}"
