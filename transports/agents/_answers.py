"""Answers of tools for a model: text, attached files, or an error. No I/O."""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..errors import ABPError
from ..routing import Result


@dataclass(frozen=True, slots=True)
class Attachment:
    """Content of a file beside the text of an answer. ``label`` says which of several pictures it is."""

    data: bytes = field(repr=False)
    mime_type: str
    filename: str
    label: str = ""

    @property
    def base64(self) -> str:
        """The content as base64."""
        return base64.b64encode(self.data).decode()

    @property
    def is_image(self) -> bool:
        """True for an image."""
        return self.mime_type.startswith("image/")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a tool: the text for the model, and the content of files beside it.

    ``result`` is the result of the app's call, for the program; ``error`` the error of a call that failed, whose text
    says what the model can do."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    result: Result | None = None
    error: ABPError | None = None

    @property
    def document(self) -> dict[str, object] | None:
        """JSON about the result for message histories: what ``abp call --json`` prints, without ``data``, which may be
        large and is in the file at ``""``; ``None`` without a result."""
        if self.result is None:
            return None
        return {name: value for name, value in self.result.as_dict().items() if name != "data"}

    @property
    def is_error(self) -> bool:
        """True if the call failed."""
        return self.error is not None


def is_attached(mime_type: str, patterns: Collection[str]) -> bool:
    """Return whether content of a type is attached, by patterns such as ``image/*``."""
    return any(fnmatchcase(mime_type, pattern) for pattern in patterns)
