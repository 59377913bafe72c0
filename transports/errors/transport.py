"""Errors of the way to the app: connecting, calling, losing the connection, replaying a recording."""

from __future__ import annotations

import errno
import re

from .base import ABPError, format_seconds

__all__ = [
    "NOTHING_LISTENS",
    "BadRecording",
    "BrowserCrashed",
    "BrowserNotFound",
    "CallTimeout",
    "ConnectFailed",
    "ContextLost",
    "Disconnected",
    "DiscoveryFailed",
    "NotAbpApp",
    "NotRecorded",
    "OutcomeUnknown",
    "PageCrashed",
    "ProfileInUse",
    "ProtocolError",
    "TransportError",
    "connection_failure",
    "is_refused",
    "may_have_run",
    "no_answer",
    "repeat_advice",
]

#: Why no connection was made where it was refused.
NOTHING_LISTENS = "nothing listens there"


class TransportError(ABPError):
    """Raised when the way to the app failed in a manner that no subclass names, for example when content that stayed
    in the page cannot be fetched. The session survives. The message says what failed; try the call again once."""

    code = "TRANSPORT_ERROR"


class ConnectFailed(TransportError):
    """Raised by opening a session when nothing answers at the target, or when it is no ABP server. There is no
    session. Start the app or correct the address, then connect again."""

    session_survives = False


class BrowserNotFound(TransportError):
    """Raised by opening a session when no browser was found, or when the one found did not start. There is no session.
    Run ``abp doctor --install``, or name an executable with ``ABP_BROWSER``."""

    code = "BROWSER_ERROR"
    session_survives = False


class ProfileInUse(TransportError):
    """Raised by opening a session when another process has the browser profile open. There is no session. Close the
    other browser, give another ``profile=``, or attach to that browser with ``cdp_url=``."""

    code = "BROWSER_ERROR"
    retryable = True
    session_survives = False

    @classmethod
    def at(cls, folder: object) -> ProfileInUse:
        """Return the error for the profile in ``folder``."""
        return cls(
            f"the profile {folder} is open in another browser process; close that one, give another profile=, or "
            "attach to it with cdp_url="
        )


class NotAbpApp(TransportError):
    """Raised by opening a session when the page has no ``window.abp``, or one without the functions of the protocol.
    There is no session. Check the address: is it the app itself, and not a page that leads to it? The code of a page
    that asks to sign in is ``PERMISSION_REQUIRED``: ``abp login`` keeps who signs in to it."""

    code = "NOT_SUPPORTED"
    session_survives = False


class DiscoveryFailed(TransportError):
    """Raised by :func:`transports.discover` when a page gave no manifest that can be read; ``details`` holds the
    ``url``. The session survives, if there is one. Connect anyway: a manifest is optional."""

    code = "DISCOVERY_FAILED"


class CallTimeout(TransportError):
    """Raised when no answer came within the ``timeout`` of the call. The app has been asked to cancel it, but may have
    done the work. The session survives. Give a longer ``timeout``, or call again if the capability may run twice."""

    code = "TIMEOUT"
    retryable = True


class OutcomeUnknown(TransportError):
    """Raised when a page or frame navigated while a WebMCP tool of it ran: the work may have been done or not. The call
    is never sent again by itself, whether it is idempotent or not. The session survives: it goes on with the tools of
    the page that is there now. Look at the page before you call again."""

    code = "OUTCOME_UNKNOWN"


class ProtocolError(TransportError):
    """Raised when an answer came that is no valid ABP: unreadable JSON, a missing field, nesting without end. The
    session survives. The fault is the app's: ``abp conformance`` shows its author which rule is broken."""

    code = "PROTOCOL_ERROR"


class NotRecorded(TransportError):
    """Raised by a replay when it is asked for something that its recording does not hold. The message shows the
    nearest entry, and ``details["diff"]`` how it differs. The session survives. Correct the test, or record again."""

    code = "NOT_RECORDED"


class BadRecording(TransportError):
    """Raised by opening a replay when the recording cannot be read, or content that it refers to is gone.
    ``details["line"]`` is the line at fault, counted from 1. There is no session. Record again."""

    code = "BAD_RECORDING"
    session_survives = False


class Disconnected(TransportError):
    """Raised when the app is gone: the connection closed or broke, or the transport was closed during the call. The
    session is over, except on a transport that reconnects (:class:`transports.Features`). Connect again; call again
    if the capability may run twice. ``details["sent"]`` is ``False`` if the request never left."""

    code = "DISCONNECTED"
    retryable = True
    session_survives = False


class BrowserCrashed(Disconnected):
    """Raised when the browser or its driver ended during a call. All sessions of that browser are over, except where
    it is restarted for them. Connect again, with less memory in use if it happens again."""


class PageCrashed(Disconnected):
    """Raised when the process that renders the app's page ended during a call. The page's session is over, except
    where the page is opened again for it; other sessions of the browser go on. Connect again."""


class ContextLost(Disconnected):
    """Raised when the page navigated or reloaded during a call, which takes the app's state with it. The session is
    over, except where the transport initializes the new page. Call again."""


#: Errors after which nobody knows whether the call has run.
_ANSWER_LOST = (CallTimeout, Disconnected, OutcomeUnknown)


def may_have_run(error: ABPError) -> bool:
    """Whether nobody knows, after ``error``, if the call has run: its answer is lost, and sending it again could run it
    twice."""
    return isinstance(error, _ANSWER_LOST) and error.details.get("sent") is not False


def repeat_advice(error: ABPError) -> str:
    """Return what to do before the call that ended with ``error`` is made again, for messages and for agents."""
    return "it may have run: look at the app before you call again" if may_have_run(error) else "call again"


def no_answer(request: str, timeout: float) -> CallTimeout:
    """Return the error for a request that was not answered within ``timeout`` seconds. ``request`` names it for people;
    it is empty, or ``capabilities/call``, for a call, whose capability the session puts before the message."""
    call = request in ("", "capabilities/call")
    what = "" if call else f" to {request}"
    longer = _LONGER.get("" if call else request, "")
    unsent = {"sent": False} if longer and not call else {}  # the session is not open: there is no call yet
    return CallTimeout(f"no answer{what} within {format_seconds(timeout)}{longer}", details=unsent)


_OPENING = "; if the app needs longer to start, raise connect(timeout=) or ABP_BROWSER_TIMEOUT (milliseconds)"
#: What sets the time of a request.
_LONGER = {
    "": "; if it takes longer, raise timeout= (for all calls: ABP_CALL_TIMEOUT, milliseconds)",
    "initialize": _OPENING,
    "capabilities/list": _OPENING,
}


def is_refused(error: OSError) -> bool:
    """Return whether nothing listens at an address: no address of the host that can be tried takes a connection. Of
    several, asyncio and aiohttp make one error that has only a text."""
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    codes = {int(code) for code in re.findall(r"\[Errno (\d+)\]", str(error))}
    return errno.ECONNREFUSED in codes <= {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH}


def connection_failure(error: OSError) -> str:
    """Return why no connection was made, for a message."""
    return NOTHING_LISTENS if is_refused(error) else error.strerror or str(error) or type(error).__name__
