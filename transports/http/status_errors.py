"""Answers that are not the file: which may be asked again, and what they are called."""

from __future__ import annotations

from http import HTTPStatus

import aiohttp

from ..errors import DownloadFailed
from .download_request import Asked, expired
from .headers import retry_after
from .request import Again, excerpt

__all__ = ["phrase", "refusal"]

_MEANING = {
    401: "it wants other credentials than the app gave",
    403: "the app's credentials are not enough",
    404: "there is no such file",
    206: "a part was sent although the whole was asked for",
    204: "there is no content",
}


async def refusal(
    response: aiohttp.ClientResponse, shown: str, asked: Asked, secrets: set[str]
) -> Again | DownloadFailed:
    """The error that ``response`` means. Only 429 and 5xx are worth another request (:class:`.connect.Again`); past
    ``expires_at``, the usual answers to a link that is over are one (:class:`~transports.errors.UrlExpired`)."""
    status, late = response.status, asked.late()
    if status == 410 or (late is not None and status in (401, 403, 404)):
        return expired(shown, late, status)
    details: dict[str, object] = {"url": shown, "status": status}
    if status >= 400 and (body := await excerpt(response, secrets)):
        details["body"] = body
    meaning = f": {_MEANING[status]}" if status in _MEANING else ""
    repeat = status == 429 or 500 <= status < 600
    wait = retry_after(response.headers.get("Retry-After"), asked.clock()) if repeat else None
    error = DownloadFailed(
        f"{shown} answered {phrase(status)}{meaning}", retryable=repeat, retry_after=wait, details=details
    )
    return Again(error, wait) if repeat else error


def phrase(status: int) -> str:
    """An HTTP status as people know it: ``404 Not Found``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
