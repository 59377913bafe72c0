"""Diagnostics of a page: script errors, failed requests, last lines of the console, and messages for failed openings.

Nothing is collected while the page works: the browser keeps these records anyway, and they are read after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from .._internal.masking import NO_SECRETS
from .._internal.redaction import Redactor
from ..errors import NOTHING_LISTENS, NotAbpApp, first_line, format_seconds, spelled, status_phrase
from ..protocol._plain_text import redact_url
from ._process import listen
from ._received import AppState

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page

#: Items kept of each kind: the first errors and requests, the last lines of the console.
_MAX_ITEMS = 20
#: The first place in the stack of an error, as Chromium writes it.
_STACK_FRAME = re.compile(r"\n {1,8}at (?:.{0,200}?\()?(?P<url>\w+://[^\s()]{1,2000}):(?P<position>\d+:\d+)\)?")
#: Start of the message of a failed request.
_NETWORK_PREFIX = "Failed to load resource: "
#: Redactor without known values: the session that shows these lines masks them itself.
_REDACTOR = Redactor(secrets=NO_SECRETS)
#: State of a document, and the address of the first script or style sheet that holds it up.
_MISSING_PARTS = """() => {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const parts = document.querySelectorAll("script[src]:not([async]), link[rel~=stylesheet][href]");
  const addresses = Array.from(parts, (part) => part.src || part.href);
  return [document.readyState, addresses.find((address) => !loaded.includes(address)) ?? ""];
}"""
#: Status of HTTP for "Upgrade Required": the address belongs to a WebSocket.
_UPGRADE = 426
#: Reasons of a failed navigation, with advice, by Chromium's ``net::ERR_…`` code.
_REASONS = {
    "ERR_CONNECTION_REFUSED": f"{NOTHING_LISTENS}; start the app or correct the address",
    "ERR_NAME_NOT_RESOLVED": "unknown host name; correct the address",
    "ERR_CONNECTION_TIMED_OUT": "the host does not answer; correct the address or check the network",
    "ERR_CERT": "its certificate is not trusted; have this system trust it",
    "ERR_SSL_PROTOCOL_ERROR": "the server does not speak TLS; try http://, or fix its TLS",
    "ERR_UNSAFE_PORT": "browsers refuse this port; serve the app on another",
    "Download is starting": "the address is a download, not a page; give the address of the app's page",
    "ERR_ABORTED": "the address is a download, or its answer has no content; give the address of the app's page",
    "ERR_INVALID_AUTH_CREDENTIALS": "the server answers 401 Unauthorized: it refuses the name and the password; give "
    "them in the address (https://NAME:PASSWORD@…), or a context= that was made with http_credentials=",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer; is it an https:// address?",
    "ERR_BLOCKED_BY_LOCAL_NETWORK_ACCESS_CHECKS": "the browser keeps pages out of the local network",
}


def explain_load_failure(error: str, url: str, status: int | None = None) -> str:
    """Return why a page did not load, with advice. ``error`` is the message of Playwright or Chromium's ``net::ERR_…``
    code, ``status`` the HTTP status of the last answer."""
    message = first_line(error)
    if status in (204, 205):
        return f"the server answers {status_phrase(status)}, so there is no page; correct the address"
    if status is not None and "ERR_HTTP_RESPONSE_CODE_FAILURE" in message:
        return f"the server answers {status_phrase(status)}; {_status_advice(status)}"

    # A navigation that is aborted after an answer has become a download.
    if status is not None and "ERR_ABORTED" in message:
        message = "Download is starting"
    for code, reason in _REASONS.items():
        if code in message:
            if code == "ERR_CERT":
                reason += spelled(", or give a context= that was made with ignore_https_errors=True")
            return reason

    # For an error without advice, return its code or the message of Playwright.
    start = message.find("net::")
    if start >= 0:
        return message[start:].split(" at ")[0]
    return message.removeprefix("Page.goto: ").replace(url, "it")


async def explain_slow_load(page: Page) -> str:
    """Return what a page that loads too slowly waits for. If the page hangs, the reason is a guess after two seconds.
    Never raises."""
    async with _best_effort():
        if page.url == "about:blank":
            return "its server has not answered; is it the right address?"
        state, missing = await page.evaluate(_MISSING_PARTS)
        if missing:
            return f"it waits for {shown_address(missing)}"
        if state != "complete":
            return "a part of it has not arrived"
    return "is it the right address?"


@contextlib.asynccontextmanager
async def _best_effort() -> AsyncIterator[None]:
    """End the block silently after two seconds or an error: neither may hide the error that is being explained."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            yield


def location_note(current: str, target: str) -> str:
    """Return where a page is now, as a part of a sentence; empty if that is its ``target``."""
    if same_document(current, target):
        return ""
    return f", now at {shown_address(current)},"


def shown_address(url: str) -> str:
    return redact_url(url)[:200]


def same_document(current: str, target: str) -> bool:
    """Return whether two addresses are those of one document. A fragment counts only if the target has one."""
    current_parts, target_parts = urlsplit(current), urlsplit(target)
    same_fragment = target_parts.fragment in ("", current_parts.fragment)
    return same_fragment and _document_key(current_parts) == _document_key(target_parts)


def _document_key(parts: SplitResult) -> tuple[str, str, str, str]:
    return parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query


def sign_in_advice() -> str:
    return (
        "it asks to sign in: `abp login NAME` does that once for an app of abp.toml (docs/team.md); without one, give "
        f"{spelled('profile=')} or {spelled('storage_state=')}"
    )


async def asks_to_sign_in(frame: Frame, target: str) -> bool:
    """Return whether a page has a password field, or has led to the address of a sign-in page. Never raises."""
    if _names_sign_in(frame.url) and not _names_sign_in(target):
        return True
    async with _best_effort():
        return await frame.locator("input[type=password]").count() > 0
    return False


def _names_sign_in(url: str) -> bool:
    parts = urlsplit(url)
    words = r"(?i)(?<![a-z])(?:log-?[io]n|sign-?in|sso|saml2?|oauth2?|authorize)(?![a-z])"
    return re.search(words, parts.netloc + parts.path) is not None


@dataclass(slots=True)
class PageProblems:
    """Problems of a page since its last navigation. Each item is a line of at most 300 characters without secrets.

    ``errors`` are uncaught exceptions and violations of the page's policy, with file, line and column if known.
    ``requests`` are failed requests as ``URL: reason``. ``console`` are its lines as ``console.level: text``.
    """

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [*self.errors, *self.requests, *self.console]

    def summary(self) -> str:
        """Return three items at most: the first errors and requests, then the last lines of the console."""
        max_items = 3
        items = [*self.errors, *self.requests][:max_items]
        free_places = max_items - len(items)
        if free_places:
            items += self.console[-free_places:]
        return "; ".join(items)

    def as_details(self) -> dict[str, list[str]]:
        kinds = {"page_errors": self.errors, "failed_requests": self.requests, "console": self.console}
        return {name: items for name, items in kinds.items() if items}

    def add_error(self, text: str, url: str, line: int, column: int) -> None:
        """Add an error of a script. ``url`` is empty if its place is not known. Lines and columns count from 1."""
        place = f" ({redact_url(url)}:{line}:{column})" if url else ""
        _append_item(self.errors, _shown_line(text) + place)

    def add_request(self, url: str, reason: str) -> None:
        """Add a failed request, unless it is for the icon that browsers request by themselves."""
        if not url.partition("?")[0].endswith("/favicon.ico"):
            _append_item(self.requests, f"{redact_url(url)}: {_shown_line(reason)}")

    def add_console(self, level: str, text: str, frame: Mapping[str, Any] | None = None) -> None:
        """Add a line of the console. An error has the place where it was created if the page logged the stack,
        otherwise the place where it was logged (``frame``)."""
        place = ""
        if level == "error":
            creation = _STACK_FRAME.search(text)
            if creation is not None:
                place = f" ({redact_url(creation['url'])}:{creation['position']})"
            elif frame and frame["url"]:
                place = f" ({redact_url(frame['url'])}:{frame['lineNumber'] + 1}:{frame['columnNumber'] + 1})"
        self.console.append(f"console.{level}: {_shown_line(text)}{place}")
        del self.console[:-_MAX_ITEMS]


def not_abp(fault: str, advice: str, problems: PageProblems, *, sign_in: bool) -> NotAbpApp:
    """Return the error for a page that is no app. ``advice`` is left out if an error of a script explains the
    ``fault``. A page that asks to sign in gets only the advice to do so."""
    if sign_in:
        return NotAbpApp(f"{fault}; {sign_in_advice()}", code="PERMISSION_REQUIRED", details=problems.as_details())
    parts = [fault]
    if problems.summary():
        parts.append(f"the page reports: {problems.summary()}")
    if advice and not problems.errors:
        parts.append(advice)
    return NotAbpApp("; ".join(parts), details=problems.as_details())


async def read_problems(page: Page, frame: Frame | None = None) -> PageProblems:
    """Return the problems that the browser has recorded for a page. Never raises. If the page is gone or hangs, the
    result is incomplete after two seconds."""
    problems = PageProblems()
    async with _best_effort():
        try:
            cdp = await page.context.new_cdp_session(frame or page)
        except Exception:  # noqa: BLE001 - a browser without CDP, or a frame in the page's own process
            await _read_with_playwright(page, problems)
        else:
            await _read_with_cdp(cdp, page.url, problems)
    return problems


async def _read_with_cdp(cdp: CDPSession, page_url: str, problems: PageProblems) -> None:
    """Read the browser's records over CDP: it repeats them as events when their domains are enabled."""

    def on_exception(event: Mapping[str, Any]) -> None:
        details = event["exceptionDetails"]
        exception = details.get("exception", {})
        # What a script throws need not be an Error: then it has a value and no description.
        text = exception.get("description") or exception.get("value") or details["text"]
        problems.add_error(str(text), details.get("url", ""), details["lineNumber"] + 1, details["columnNumber"] + 1)

    def on_console(event: Mapping[str, Any]) -> None:
        values = [arg.get("value", arg.get("description", arg["type"])) for arg in event["args"]]
        frames = event.get("stackTrace", {}).get("callFrames", ())
        problems.add_console(event["type"], " ".join(map(str, values)), frames[0] if frames else None)

    def on_log(event: Mapping[str, Any]) -> None:
        entry = event["entry"]
        text = entry["text"]
        url = entry.get("url", "")
        match entry["level"], entry["source"]:
            case "error", "security" if "Content Security Policy" in text:
                # A violation of the page's policy may stop its own script; other messages on security do not.
                problems.add_error(text, url, entry.get("lineNumber", 0) + 1, 1)
            case "error", "network":
                # The page's own status is left out, as it is in the message already.
                if url != page_url:
                    problems.add_request(url, text.removeprefix(_NETWORK_PREFIX))
            case level, _:
                problems.add_console(level, text)

    listen(cdp, "Runtime.exceptionThrown", on_exception)
    listen(cdp, "Runtime.consoleAPICalled", on_console)
    listen(cdp, "Log.entryAdded", on_log)
    await cdp.send("Runtime.enable")
    await cdp.send("Log.enable")
    await cdp.detach()


async def _read_with_playwright(page: Page, problems: PageProblems) -> None:
    for error in await page.page_errors():
        text = error.message
        if error.name:
            text = f"{error.name}: {error.message}"
        problems.add_error(text, "", 0, 0)

    for message in await page.console_messages():
        # Failed requests are read below.
        if not message.text.startswith(_NETWORK_PREFIX):
            problems.add_console(message.type, message.text, message.location)

    for request in await page.requests():
        response = request.existing_response
        if response is not None and response.status >= 400 and request.url != page.url:
            problems.add_request(request.url, f"HTTP {response.status}")
        elif request.failure:
            problems.add_request(request.url, request.failure)


def _append_item(items: list[str], item: str) -> None:
    if len(items) < _MAX_ITEMS and item not in items:
        items.append(item)


def _shown_line(text: str) -> str:
    max_chars = 300
    line = _REDACTOR.redact_text(first_line(text))
    if len(line) > max_chars:
        return f"{line[:max_chars]}…"
    return line


def app_fault(app: AppState, protocol: str, waited: float) -> str:
    """Return what an app lacks, as the end of a sentence; empty if it is complete. ``protocol`` may be ``auto``;
    ``waited`` is in seconds."""
    if app.threw:
        return f"has a window.abp that throws: {app.threw[:200]}"
    if not app.present:
        missing = {"abp": "no window.abp", "webmcp": "no WebMCP tools", "auto": "no window.abp and no WebMCP tools"}
        return f"has {missing[protocol]} {format_seconds(waited)} after it loaded"

    has_neither_function = len(app.missing) == 2
    if has_neither_function:
        fault = (
            "has a window.abp of another product, with neither initialize nor call (the ABP Framework of ASP.NET has "
            "one)"
        )
        if protocol != "abp":
            fault += f", and no WebMCP tools {format_seconds(waited)} after it loaded"
        return fault
    if app.missing:
        return f"has a window.abp without {' and '.join(app.missing[:2])}: it is incomplete"
    return ""


def refused_page(app: AppState, status: int | None, url: str) -> str:
    """Return how the server refused a page without an app; empty if it did not."""
    has_app = app.present or app.threw
    if has_app or status is None:
        return ""
    if status < 400 or status == _UPGRADE:
        return ""
    return f"the server answers {status_phrase(status)} at {redact_url(url)}; {_status_advice(status)}"


def _status_advice(status: int) -> str:
    if status in (401, 403):
        return f"sign in with {spelled('profile=')} or {spelled('storage_state=')}, or correct the address"
    if status == 429:
        return "wait, and connect again"
    if status >= 500:
        return "see the log of the server"
    return "correct the address"


def advice_for(app: AppState, protocol: str, status: int | None) -> str:
    """Return what to do about a page that has no app for ``protocol``."""
    if status == _UPGRADE:
        return "use ws:// for a WebSocket"
    if protocol != "webmcp":
        return (
            "is it the right address, and does the app speak ABP? a page that speaks no protocol needs a script that "
            f"makes an app of it: {spelled('adapter=')} (docs/adapters.md)"
        )
    advice = "does it register tools, or a form with a toolname?"
    if not app.webmcp:
        advice += "; this browser has no WebMCP, see `abp doctor`"
    return advice
