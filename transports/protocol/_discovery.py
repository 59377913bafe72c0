"""The result of a discovery: an app's manifest, read without a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DiscoveryFailed

if TYPE_CHECKING:
    from ._declarations import Manifest


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a discovery: either a ``manifest`` or the ``reason`` why there is none.

    ``page_url`` and ``manifest_url`` are the URLs after redirects, without user info; ``manifest_url`` is ``None`` if
    the page has no manifest link. ``title`` is the page's, in one line of at most 200 characters.
    ``manifest_type`` is the media type that the manifest was served with, "" without one.
    ``warnings`` name the parts of the manifest that are missing or were left out, and an unexpected version or type.
    """

    page_url: str
    manifest_url: str | None = None
    title: str = ""
    manifest: Manifest | None = None
    manifest_type: str = ""
    warnings: tuple[str, ...] = ()
    reason: DiscoveryFailed | None = None
