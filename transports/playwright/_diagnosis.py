"""Diagnostics of a page: script errors, failed requests, last lines of the console, and messages for failed openings.

Nothing is collected while the page works: the browser keeps these records anyway, and they are read after a failure
(:func:`read_problems`). The rest explains why an address is not an app: :func:`explain_load_failure`,
:func:`app_fault`, :func:`advice_for`, :func:`asks_to_sign_in`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from .._internal.privacy._redaction import Redactor
from .._internal.privacy._secrets import NO_SECRETS
from ..errors import NOTHING_LISTENS, NotAbpApp, first_line, format_seconds, spelled, status_phrase
from ..protocol._plain_text import redact_url
from ._listeners import listen
from ._received import AppState

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page

#: Characters shown of an address that a page chose.
_SHOWN = 200
#: Advice on a certificate that is not trusted, for those who can give a context.
_OWN_CONTEXT = ", or give a context= that was made with ignore_https_errors=True"
#: Reasons of a failed navigation, with advice, by Chromium's ``net::ERR_…`` code.
_REASONS = {
    "ERR_CONNECTION_REFUSED": f"{NOTHING_LISTENS}; start the app or correct the address",
    "ERR_NAME_NOT_RESOLVED": "the host name is not known; correct the address",
    "ERR_CONNECTION_TIMED_OUT": "the host does not answer; correct the address or check the network",
    "ERR_CERT": "its certificate is not trusted; have this system trust it",
    "ERR_SSL_PROTOCOL_ERROR": "it does not speak TLS as https:// says; try http://, or mend its TLS",
    "ERR_UNSAFE_PORT": "browsers refuse this port; serve the app on another",
    "Download is starting": "the address is a download, not a page; give the address of the app's page",
    "ERR_ABORTED": "the address is a download, or its answer has no content; give the address of the app's page",
    "ERR_INVALID_AUTH_CREDENTIALS": "the server answers 401 Unauthorized, and knows no such name and password; give "
    "them in the address (https://NAME:PASSWORD@…), or a context= that was made with http_credentials=",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer; is it an https:// address?",
    "ERR_BLOCKED_BY_LOCAL_NETWORK_ACCESS_CHECKS": "the browser keeps pages out of the local network",
}


def explain_load_failure(error: str, url: str, status: int | None = None) -> str:
    """Return the reason of a failed navigation to ``url``, with advice if the cause is known.

    ``error`` is the message of Playwright or the ``net::ERR_…`` code of Chromium, ``status`` that of the last answer.
    """
    first = first_line(error)
    if status in (204, 205):
        return f"the server answers {status_phrase(status)}, so there is no page; correct the address"
    if status is not None and "ERR_HTTP_RESPONSE_CODE_FAILURE" in first:
        return f"the server answers {status_phrase(status)}; {_status_advice(status)}"
    if status is not None and "ERR_ABORTED" in first:
        first = "Download is starting"
    if known := next((code for code in _REASONS if code in first), None):
        return _REASONS[known] + (spelled(_OWN_CONTEXT) if known == "ERR_CERT" else "")
    net = first.find("net::")
    return first[net:].split(" at ")[0] if net >= 0 else first.removeprefix("Page.goto: ").replace(url, "it")


def now_at(current: str, target: str) -> str:
    """Return the current address for a message about ``target``; empty if it is the same document."""
    return "" if same_document(current, target) else f", now at {shown_address(current)},"


def shown_address(url: str) -> str:
    """Return an address that a page chose for a message, without secrets and cut to 200 characters."""
    return redact_url(url)[:_SHOWN]


def same_document(current: str, target: str) -> bool:
    """Return whether a page at ``current`` is at ``target`` already. A fragment counts only if the target has one."""
    current_parts, target_parts = urlsplit(current), urlsplit(target)
    fragment = target_parts.fragment in ("", current_parts.fragment)
    return fragment and _document(current_parts) == _document(target_parts)


def _document(parts: SplitResult) -> tuple[str, str, str, str]:
    return parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query


def sign_in_advice() -> str:
    """Return advice for a page that asks to sign in."""
    return (
        "it asks to sign in: `abp login NAME` does that once for an app of abp.toml (docs/team.md); without one, give "
        f"{spelled('profile=')} or {spelled('storage_state=')}"
    )


#: Words in the address of a sign-in page; compiled at the first use, since few pages are asked.
_WORDS = r"(?i)(?<![a-z])(?:log-?[io]n|sign-?in|sso|saml2?|oauth2?|authorize)(?![a-z])"


async def asks_to_sign_in(frame: Frame, target: str) -> bool:
    """Return whether the page in ``frame``, which was opened at ``target``, has a password field, or has led to the
    address of a sign-in page: there is no sign-in yet, or it has expired. Never raises; ``False`` after two seconds for
    a page that hangs."""
    moved = not same_document(frame.url, target)
    if moved and re.search(_WORDS, _place(frame.url)) and not re.search(_WORDS, _place(target)):
        return True
    with contextlib.suppress(Exception):  # must not hide the error that is being explained
        async with asyncio.timeout(_TIMEOUT):
            return await frame.locator("input[type=password]").count() > 0
    return False


def _place(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc + parts.path


#: Seconds for the page to answer.
_TIMEOUT = 2.0
#: Items kept of each kind: the first errors and requests, the last lines of the console.
_MAX_ITEMS = 20
#: The first place in the stack of an error, as Chromium writes it.
_FRAME = re.compile(r"\n {1,8}at (?:.{0,200}?\()?(\w+://[^\s()]{1,2000}):(\d+:\d+)\)?")
#: Items shown in a message.
_MAX_SUMMARY = 3
#: Characters of one item.
_MAX_CHARS = 300
#: Mark of a violation of the page's policy, which may stop its own script, among other messages on security.
_POLICY = "Content Security Policy"
_NETWORK_PREFIX = "Failed to load resource: "
#: Redacts by rules alone: the session that shows these lines masks its known values itself.
_REDACTOR = Redactor(known=NO_SECRETS)


@dataclass(slots=True)
class PageProblems:
    """Diagnostics of a page since its last navigation, each item as a line of at most 300 characters without secrets.

    ``errors`` are uncaught exceptions and violations of the page's policy, with file, line and column if known.
    ``requests`` are failed requests as ``URL: reason``. ``console`` are its lines as ``console.level: text``.
    """

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the errors, then the requests, then the lines of the console."""
        return [*self.errors, *self.requests, *self.console]

    def summary(self) -> str:
        """Return three items for a message: the first errors and requests, then the last lines of the console. Empty if
        there are none."""
        first = [*self.errors, *self.requests][:_MAX_SUMMARY]
        skipped = max(len(self.console) + len(first) - _MAX_SUMMARY, 0)
        return "; ".join([*first, *self.console[skipped:]])

    def as_details(self) -> dict[str, list[str]]:
        """Return the non-empty kinds: ``page_errors``, ``failed_requests`` and ``console``."""
        kinds = {"page_errors": self.errors, "failed_requests": self.requests, "console": self.console}
        return {name: items for name, items in kinds.items() if items}

    def add_error(self, text: str, url: str, line: int, column: int) -> None:
        """Add an error and its place in a file, if known (``url`` is not empty). Lines and columns count from 1."""
        where = f" ({redact_url(url)}:{line}:{column})" if url else ""
        _append(self.errors, _line(text) + where)

    def add_request(self, url: str, reason: str) -> None:
        """Add a failed request. The icon that browsers request by themselves is left out."""
        if not url.partition("?")[0].endswith("/favicon.ico"):
            _append(self.requests, f"{redact_url(url)}: {_line(reason)}")

    def add_console(self, level: str, text: str, frame: Mapping[str, Any] | None = None) -> None:
        """Add a line of the console; the oldest is dropped if there are too many. An error gets its place: that of its
        creation if the page logged its stack, otherwise that of the logging call, ``frame``."""
        where = ""
        if level == "error" and (made := _FRAME.search(text)):
            where = f" ({redact_url(made[1])}:{made[2]})"
        elif level == "error" and frame and frame["url"]:
            where = f" ({redact_url(frame['url'])}:{frame['lineNumber'] + 1}:{frame['columnNumber'] + 1})"
        self.console.append(f"console.{level}: {_line(text)}{where}")
        del self.console[:-_MAX_ITEMS]


def not_abp(fault: str, advice: str, problems: PageProblems, *, sign_in: bool) -> NotAbpApp:
    """Return the error for a page that is not an app, with its diagnostics: the first three in the message, all in
    ``details``. ``advice`` is left out if a script error explains the ``fault``. For a page that asks to sign in
    (``sign_in``), that is the explanation."""
    if sign_in:
        return NotAbpApp(f"{fault}; {sign_in_advice()}", code="PERMISSION_REQUIRED", details=problems.as_details())
    said = f"the page says: {problems.summary()}" if problems.summary() else ""
    parts = [fault, said, "" if problems.errors else advice]
    return NotAbpApp("; ".join(filter(None, parts)), details=problems.as_details())


async def read_problems(page: Page, frame: Frame | None = None) -> PageProblems:
    """Return the diagnostics of ``page``, or of ``frame`` if that has a process of its own, within two seconds.

    Never raises. For a page that is gone or hangs, the result is incomplete.
    """
    problems = PageProblems()
    with contextlib.suppress(Exception):  # must not hide the error that is being explained
        async with asyncio.timeout(_TIMEOUT):
            try:
                cdp = await page.context.new_cdp_session(frame or page)
            except Exception:  # noqa: BLE001 - a browser without CDP, or a frame in the page's own process
                await _read_with_playwright(page, problems)
            else:
                await _read_with_cdp(cdp, page.url, problems)
    return problems


async def _read_with_cdp(cdp: CDPSession, page_url: str, problems: PageProblems) -> None:
    """Read the records of the browser over CDP: it repeats them as events whenever the domains are enabled."""

    def on_exception(event: Mapping[str, Any]) -> None:
        details = event["exceptionDetails"]
        exception = details.get("exception", {})
        text = exception.get("description") or exception.get("value") or details["text"]
        problems.add_error(str(text), details.get("url", ""), details["lineNumber"] + 1, details["columnNumber"] + 1)

    def on_console(event: Mapping[str, Any]) -> None:
        values = [arg.get("value", arg.get("description", arg["type"])) for arg in event["args"]]
        frames = event.get("stackTrace", {}).get("callFrames", ())
        problems.add_console(event["type"], " ".join(map(str, values)), frames[0] if frames else None)

    def on_log(event: Mapping[str, Any]) -> None:
        entry = event["entry"]
        level, source, text, url = entry["level"], entry["source"], entry["text"], entry.get("url", "")
        if level == "error" and source == "security" and _POLICY in text:
            problems.add_error(text, url, entry.get("lineNumber", 0) + 1, 1)
        elif level != "error" or source != "network":
            problems.add_console(level, text)
        elif url != page_url:  # the page's own status is in the message already
            problems.add_request(url, text.removeprefix(_NETWORK_PREFIX))

    listen(cdp, "Runtime.exceptionThrown", on_exception)
    listen(cdp, "Runtime.consoleAPICalled", on_console)
    listen(cdp, "Log.entryAdded", on_log)
    await cdp.send("Runtime.enable")
    await cdp.send("Log.enable")
    await cdp.detach()


async def _read_with_playwright(page: Page, problems: PageProblems) -> None:
    for error in await page.page_errors():
        problems.add_error(f"{error.name}: {error.message}" if error.name else error.message, "", 0, 0)
    for message in await page.console_messages():
        if not message.text.startswith(_NETWORK_PREFIX):  # a failed request, which is listed below
            problems.add_console(message.type, message.text, message.location)
    for request in await page.requests():
        response = request.existing_response
        if response is not None and response.status >= 400 and request.url != page.url:
            problems.add_request(request.url, f"HTTP {response.status}")
        elif request.failure:
            problems.add_request(request.url, request.failure)


def _append(items: list[str], item: str) -> None:
    if len(items) < _MAX_ITEMS and item not in items:
        items.append(item)


def _line(text: str) -> str:
    line = _REDACTOR.text(first_line(text))
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"


_LACKS = {"abp": "no window.abp", "webmcp": "no WebMCP tools", "auto": "no window.abp and no WebMCP tools"}


def app_fault(found: AppState, protocol: str, grace: float) -> str:
    """Return the fault of the page ``grace`` seconds after it loaded, in words; empty if its ``window.abp`` is
    complete. ``protocol`` is the one that was looked for: ``abp``, ``webmcp`` or ``auto``."""
    if found.threw:
        return f"has a window.abp that throws: {found.threw[:200]}"
    if not found.present:
        return f"has {_LACKS[protocol]} {format_seconds(grace)} after it loaded"
    if len(found.missing) == 2:
        return (
            "has a window.abp of another product, with neither initialize nor call (the ABP Framework of ASP.NET has "
            f"one){'' if protocol == 'abp' else f', and no WebMCP tools {format_seconds(grace)} after it loaded'}"
        )
    if found.missing:
        return f"has a window.abp without {' and '.join(found.missing[:2])}: it is incomplete"
    return ""


#: Advice for statuses of HTTP that a page without an app may have, before that for all of 400 or 500 and more.
_STATUS_ADVICE = {
    429: "wait, and connect again",
    400: "correct the address",
    500: "the log of the server says why",
}
#: Upgrade Required: the address is that of a WebSocket.
_UPGRADE = 426


def refused_page(found: AppState, status: int | None, url: str) -> str:
    """Return what the server said in the place of an app, with advice; empty unless ``status`` is an error of HTTP."""
    if found.present or found.threw or status is None or status < 400 or status == _UPGRADE:
        return ""
    return f"the server answers {status_phrase(status)} at {redact_url(url)}; {_status_advice(status)}"


def _status_advice(status: int) -> str:
    if status in (401, 403):
        return f"sign in with {spelled('profile=')} or {spelled('storage_state=')}, or correct the address"
    return _STATUS_ADVICE.get(status) or _STATUS_ADVICE[500 if status >= 500 else 400]


def advice_for(found: AppState, protocol: str, status: int | None) -> str:
    """Return advice for a page without an app; ``status`` is its HTTP status if known."""
    if status == _UPGRADE:
        return "use ws:// for a WebSocket"
    if protocol != "webmcp":
        return (
            "is it the right address, and does the app speak ABP? a page that speaks no protocol needs a script that "
            f"makes an app of it: {spelled('adapter=')} (docs/adapters.md)"
        )
    without = "" if found.webmcp else "; this browser has no WebMCP, see `abp doctor`"
    return f"does it register tools, or a form with a toolname?{without}"
