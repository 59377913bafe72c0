"""Pictures of any address, for a model that has no browser of its own (docs/requirements.md R3-7)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

from ...artifacts import ArtifactStore
from ...base import ScreenshotOptions
from ...protocol.urls import redact_url
from ...routing import Result, Router
from ...session.settings import Settings
from .hosts import PictureHosts
from .options import Options

__all__ = ["screenshot_url"]


async def screenshot_url(
    url: str,
    given: dict[str, object],
    *,
    options: Options,
    store: ArtifactStore,
    apps: Iterable[tuple[str, tuple[str, int] | None]],
    timeout: float | None,
) -> Result:
    """Store a picture of what is at ``url`` as the artifact ``image``. A browser is started for it, and ended whatever
    happens; ``timeout`` in seconds is for the page.

    ``apps`` are the connected apps: their addresses, and where each was reached. Raises
    :class:`~transports.errors.UsageError` for an address that is not of http(s), whose host the operator does not
    allow, or that is not public, unless ``allowed_hosts`` names it or one of ``apps`` is there. All that the page
    connects is judged likewise; what it may not connect is missing in the picture, with a warning."""
    settings = Settings.load()
    started = time.perf_counter()
    hosts = PictureHosts(
        options.allowed_hosts,
        options.blocked_hosts,
        private=options.private_hosts,
        apps=apps,
        any_address=settings.allow_private_addresses,
    )
    await hosts.check(url)
    # Not before a picture is wanted: the import takes longer than the rest of the bridge.
    from ...browser.process.launch import Browser
    from ...browser.tools import screenshot_of_url

    headless = settings.headless if options.headless is None else options.headless
    async with Browser(headless=headless, timeout=settings.browser_timeout / 1000) as browser:
        picture, refused = await screenshot_of_url(
            browser,
            url,
            cast(ScreenshotOptions, given),
            hosts.addresses,
            timeout=settings.call_timeout / 1000 if timeout is None else timeout,
        )
    return await Router(store).route(
        {"image": picture, "url": redact_url(url)},
        capability="screenshot",
        transport="playwright",
        started=started,
        warnings=[f"not in the picture: {reason}" for reason in refused],
    )
