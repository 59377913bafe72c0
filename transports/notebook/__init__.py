"""HTML and pictures of results for notebooks (``_repr_html_``). Loads when a notebook asks for the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from ._html import (
        MAX_CELL as MAX_CELL,
        MAX_TEXT as MAX_TEXT,
        file_link as file_link,
        first_lines as first_lines,
        picture as picture,
        picture_html as picture_html,
        preformatted as preformatted,
        table as table,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_html": (
                "MAX_CELL",
                "MAX_TEXT",
                "file_link",
                "first_lines",
                "picture",
                "picture_html",
                "preformatted",
                "table",
            ),
        },
    )
