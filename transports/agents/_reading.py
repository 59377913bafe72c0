"""The tool with which a model reads a file that a call has produced."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping

from ..artifacts import ArtifactRef, ArtifactStore
from ..errors import UsageError
from ..protocol.schema import check_params
from ..routing import is_textual
from ..surfaces.shared import ImageLimits, Picture, read_page, read_pictures
from ._answers import Answer, Attachment, is_attached

READ_TOOL = "abp_read_artifact"
READ_DESCRIPTION = (
    "Read a file that a tool has produced, by its id: a page of a PDF, a part of a text, or an image. Other files are "
    "handed to tools by their id. (changes nothing)"
)
#: Most characters of one answer.
_MAX_CHARS = 10_000
#: Width of the picture of a page in pixels.
_WIDTH = 800
_PICTURE = {"type": "boolean", "description": "Of a PDF: the page as a picture, too."}
_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Id of the file, with or without artifact:// before it."},
        "page": {"type": "integer", "minimum": 1, "description": "Of a PDF: the page to read (1)."},
        "offset": {"type": "integer", "minimum": 0, "description": "Of a text: the byte to begin with (0)."},
    },
    "required": ["id"],
    "additionalProperties": False,
}


def read_schema(attach: Collection[str]) -> dict[str, object]:
    """Return the schema of :data:`READ_TOOL`; pictures of pages only if PNGs may be attached."""
    if not is_attached("image/png", attach):
        return _SCHEMA
    return {**_SCHEMA, "properties": {**_SCHEMA["properties"], "picture": _PICTURE}}  # type: ignore[dict-item]


async def read_artifact(
    store: ArtifactStore, arguments: Mapping[str, object], *, attach: Collection[str], limits: ImageLimits
) -> Answer:
    """Answer a call of :data:`READ_TOOL`.

    Raises :class:`~transports.errors.UsageError` for wrong arguments, a page that is not there, and a file that is
    neither text nor PDF nor image. Propagates errors of the store."""
    check_params(READ_TOOL, read_schema(attach), arguments)
    ref = await store.stat(str(arguments["id"]).removeprefix("artifact://"))
    if ref.mime_type == "application/pdf":
        return await _page(ref, store, arguments)
    if ref.mime_type.startswith("image/") and is_attached(ref.mime_type, attach):
        shown = (await read_pictures([ref], store, limits)).shown
        if shown:
            return Answer(f"{ref.filename} ({ref.mime_type}, {ref.size_bytes:,} bytes)", (attachment(shown[0]),))
    if is_textual(ref.mime_type):
        offset = arguments.get("offset", 0)
        assert isinstance(offset, int)
        return await _text(ref, store, offset)
    raise UsageError(
        f"{ref.filename} ({ref.mime_type}, {ref.size_bytes:,} bytes) cannot be read as text; give its id to a "
        "tool that takes such a file"
    )


async def _page(ref: ArtifactRef, store: ArtifactStore, arguments: Mapping[str, object]) -> Answer:
    number = arguments.get("page", 1)
    assert isinstance(number, int)
    width = _WIDTH if arguments.get("picture") is True else 0
    page = await read_page(ref, store, number, max_chars=_MAX_CHARS, width=width)
    cut = "\n… (the page has more text)" if len(page.text) >= _MAX_CHARS else ""
    text = page.text.strip() or "(no text on this page)"
    attachments = () if page.picture is None else (attachment(page.picture),)
    return Answer(f"Page {number} of {page.pages} of {ref.filename}:\n{text}{cut}", attachments)


async def _text(ref: ArtifactRef, store: ArtifactStore, offset: int) -> Answer:
    data = await store.get(ref, offset=offset, length=_MAX_CHARS)
    end = offset + len(data)
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=end >= ref.size_bytes)
    if end < ref.size_bytes:
        end = offset + len(data) - _unfinished(data)
    more = f"\n… ({ref.size_bytes:,} bytes in all; continue with offset {end})" if end < ref.size_bytes else ""
    return Answer(f"{ref.filename}, from byte {offset}:\n{text}{more}")


def _unfinished(data: bytes) -> int:
    """Return the number of bytes at the end that begin a character of UTF-8 and do not finish it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return len(decoder.getstate()[0])


def attachment(picture: Picture) -> Attachment:
    """Return a picture as an attachment of an answer."""
    return Attachment(picture.data, picture.mime_type, picture.ref.filename, picture.label)
