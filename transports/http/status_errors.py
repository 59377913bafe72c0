"""Answers that are not the file, as typed errors: which of them may be retried, and what the status means."""

from __future__ import annotations

from http import HTTPStatus

import aiohttp

from ..errors import DownloadFailed
from .download_request import DownloadRequest, RetryRequest, url_expired
from .headers import retry_after
from .request import body_excerpt

__all__ = ["status_error", "status_phrase"]

_MEANING = {
    401: "it wants other credentials than the app gave",
    403: "the app's credentials are not enough",
    404: "there is no such file",
    206: "a part was sent although the whole was request for",
    204: "there is no content",
}


async def status_error(
    response: aiohttp.ClientResponse, display_url: str, request: DownloadRequest, secrets: set[str]
) -> RetryRequest | DownloadFailed:
    """Return the error for a response.

    It is a :class:`~.download_request.RetryRequest` for 429 and 5xx, and
    :class:`~transports.errors.UrlExpired` for 410, and for 401, 403 and 404 after ``expires_at``.
    """
    status, late = response.status, request.seconds_past_expiry()
    if status == 410 or (late is not None and status in (401, 403, 404)):
        return url_expired(display_url, late, status)
    details: dict[str, object] = {"url": display_url, "status": status}
    if status >= 400 and (body := await body_excerpt(response, secrets)):
        details["body"] = body
    meaning = f": {_MEANING[status]}" if status in _MEANING else ""
    retryable = status == 429 or 500 <= status < 600
    wait = retry_after(response.headers.get("Retry-After"), request.clock()) if retryable else None
    error = DownloadFailed(
        f"{display_url} answered {status_phrase(status)}{meaning}",
        retryable=retryable,
        retry_after=wait,
        details=details,
    )
    return RetryRequest(error, wait) if retryable else error


def status_phrase(status: int) -> str:
    """Return a status with its phrase: ``404 Not Found``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
