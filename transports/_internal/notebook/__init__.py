"""HTML, pictures and progress for notebooks (``_repr_html_``). Loads when a notebook asks for the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ._html import (
        MAX_CELL as MAX_CELL,
        MAX_TEXT as MAX_TEXT,
        Html as Html,
        Picture as Picture,
        download_link as download_link,
        file_link as file_link,
        first_lines as first_lines,
        has_thumbnail as has_thumbnail,
        picture as picture,
        preformatted as preformatted,
        table as table,
        thumbnail as thumbnail,
    )
    from ._progress import ProgressBar
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_html": (
                "Html",
                "MAX_CELL",
                "MAX_TEXT",
                "Picture",
                "download_link",
                "file_link",
                "first_lines",
                "has_thumbnail",
                "picture",
                "preformatted",
                "table",
                "thumbnail",
            ),
            "_progress": ("ProgressBar",),
        },
    )

__all__ = ["ProgressBar"]
