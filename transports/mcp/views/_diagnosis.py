"""Finds out why a view shows nothing, from its document and from the browser's reports about policy and scripts."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.async_api import Error as PlaywrightError

from ..._internal.tasks import spawn
from ...playwright._process import listener
from ...protocol._plain_text import redact_url
from ._document import CspMode, policy_remedy
from ._host import Host

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Frame, Page, Request, Response

#: Line and column of a script in a stack.
_LINE = re.compile(r":(\d+):\d+\)?$", re.MULTILINE)
_VIOLATION = re.compile(
    r"(?:'(?P<address>[^'\s]+)' )?violates the following Content Security Policy directive: "
    r'"?(?P<directive>[\w-]+)[^"]*"?'
)
#: Addresses that hold a whole file would hide the directive.
_LONG_ADDRESS = re.compile(r"'((?:data|blob):[^']{60})[^']+'")


class WhyBlank(NamedTuple):
    """Why a view is blank, and what its author can do; ``remedy`` is empty if that is unknown."""

    reason: str
    remedy: str = ""


class Diagnosis:
    """Problems of a view. At most 100 reports of each kind, of 500 characters each."""

    def __init__(self, host: Host, csp: CspMode, address: str, tasks: set[asyncio.Task[None]]) -> None:
        self._host = host
        self._csp = csp
        self._address = address
        self._tasks = tasks
        #: Reports of what the view's policy forbids.
        self.violations: list[str] = []
        #: Reports of refused `eval`. These need not be faults: a library such as zod only tests whether it is allowed.
        self._refused_strings: list[str] = []
        self.sandbox_refusals: list[str] = []
        self.script_errors: list[str] = []
        #: Parts of the view that could not be fetched. Two kinds of them may stop the view's scripts: what a script
        #: could not reach, and scripts that were answered with an error.
        self.load_failures: list[str] = []
        self.missing_inputs: list[str] = []
        self.refused_scripts: list[str] = []

    def listen(self, page: Page, stack: AsyncExitStack) -> None:
        on_error = listener(partial(self._on_script_error, page))
        on_failure = listener(self._on_load_failure)
        on_response = listener(self._on_response)
        for event, receive in (("pageerror", on_error), ("requestfailed", on_failure), ("response", on_response)):
            page.on(event, receive)  # type: ignore[call-overload]
            stack.callback(page.remove_listener, event, receive)

    def _on_load_failure(self, request: Request) -> None:
        reason = request.failure or "it failed"
        # These are no faults of the network: the policy forbade the request, or the document is being left.
        if reason in ("csp", "net::ERR_ABORTED", "NS_BINDING_ABORTED", "net::ERR_BLOCKED_BY_CSP"):
            return
        failure = f"{request.resource_type} {redact_url(request.url)} did not load: {reason}"
        _add_report(self.load_failures, failure)
        may_stop_scripts = request.resource_type in ("script", "fetch", "xhr")
        if may_stop_scripts:
            _add_report(self.missing_inputs, failure)

    def _on_response(self, response: Response) -> None:
        request = response.request
        # A script can handle an error in the answer to its own `fetch`, so only parts of the document are reported.
        if request.resource_type not in ("script", "stylesheet", "image", "font", "media"):
            return
        is_script = request.resource_type == "script"
        is_error = response.status >= 400
        is_page_for_script = is_script and response.headers.get("content-type", "").startswith("text/html")
        if not is_error and not is_page_for_script:
            return

        address = redact_url(request.url) or request.url
        if request.url.startswith(self._address):
            failure = f"{request.resource_type} {address.removeprefix(self._address[:-1])} is not in the document"
        elif is_error:
            failure = f"{request.resource_type} {address} was answered with {response.status}"
        else:
            failure = f"script {address} was answered with a page of HTML"
        _add_report(self.load_failures, failure)
        if is_script:
            _add_report(self.refused_scripts, failure)

    async def watch_policy(self, page: Page, frame: Frame, stack: AsyncExitStack) -> None:
        """Listen to violations of the policy. Chromium has a log for these; in other browsers, all messages of the
        console are read."""
        try:
            log = await page.context.new_cdp_session(frame)
        except PlaywrightError:
            # Firefox, or a view in the process of its host.
            on_console = listener(self._on_console)
            page.on("console", on_console)
            stack.callback(page.remove_listener, "console", on_console)
            return
        log.on("Log.entryAdded", listener(self._on_log))
        log.on("Audits.issueAdded", listener(self._on_issue))
        # Enabling the log repeats what was logged before.
        await log.send("Log.enable")
        await log.send("Audits.enable")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._add_refusal(message.text)

    def _on_log(self, params: Mapping[str, Mapping[str, object]]) -> None:
        # Chromium logs a download that the sandbox forbids as "other".
        if params["entry"].get("source") in ("security", "other"):
            self._add_refusal(str(params["entry"].get("text", "")))

    def _on_issue(self, params: Mapping[str, Mapping[str, Mapping[str, Mapping[str, object]]]]) -> None:
        """Note code that the policy refused. The log does not have it, and the view may catch the exception."""
        details = params["issue"]["details"].get("contentSecurityPolicyIssueDetails", {})
        directive = details.get("violatedDirective")
        violation = f"violates the following Content Security Policy directive: {directive}"
        kind = details.get("contentSecurityPolicyViolationType")
        if kind == "kWasmEvalViolation":
            _add_report(self.violations, f"Compiling or instantiating WebAssembly {violation}")
        elif kind == "kEvalViolation":
            _add_report(self._refused_strings, f"Evaluating a string as JavaScript {violation}")

    def _add_refusal(self, text: str) -> None:
        """Sort a message of the browser: a violation of the policy, a refusal of the sandbox, or something else."""
        if _VIOLATION.search(text):
            _add_report(self.violations, _LONG_ADDRESS.sub(r"'\1…'", text))
        elif "sandboxed" in text:
            _add_report(self.sandbox_refusals, _LONG_ADDRESS.sub(r"'\1…'", text))

    def _on_script_error(self, page: Page, error: PlaywrightError) -> None:
        text = f"{error.name}: {error.message}" if error.name else error.message
        line = _LINE.search(error.stack or "")
        if line is not None:
            _add_report(self.script_errors, f"{text} (line {line[1]})")
            return
        _add_report(self.script_errors, text)
        frames = page.main_frame.child_frames
        if len(frames) == 1:
            spawn(self._add_line_to_error(frames[0], text[:500]), self._tasks)

    async def _add_line_to_error(self, frame: Frame, error: str) -> None:
        """Add the line to the report of a syntax error. Such an error has no stack, from which the line could be
        read."""
        line = (await syntax_errors(frame)).get(error)
        if line is not None and error in self.script_errors:
            self.script_errors[self.script_errors.index(error)] = f"{error} (line {line})"

    @property
    def why_blank(self) -> WhyBlank:
        """The likeliest reason why the view is blank: a script that could not run, then a missing handshake, then parts
        that only leave a gap."""
        for violation in self.violations:
            directive, _ = _blocked_by(violation)
            if directive.startswith(("script-src", "connect-src", "default-src")):
                return self._policy_reason(violation)

        if self.refused_scripts:
            return WhyBlank(self.refused_scripts[0], "put the script into the document, or correct its address")
        if self.missing_inputs:
            return WhyBlank(self.missing_inputs[0], "put it into the document, or make its host reachable")
        if self.script_errors:
            if self._refused_strings and any(error.startswith("EvalError") for error in self.script_errors):
                return self._policy_reason(self._refused_strings[0])
            return WhyBlank(f"its script failed: {self.script_errors[0]}", "correct the script")
        has_begun = self._host.initialized.is_set() or self._host.openai_used.is_set()
        if not has_begun:
            return self._handshake_missing()
        if self.violations:
            return self._policy_reason(self.violations[0])
        if self.load_failures:
            return WhyBlank(self.load_failures[0], "put it into the document, or correct its address")
        return WhyBlank("its document draws nothing, and no script of it failed")

    def _handshake_missing(self) -> WhyBlank:
        if self._host.has_begun:
            remedy = "send ui/notifications/initialized once the answer to ui/initialize is there"
            return WhyBlank("it asked for its host and did not finish the handshake", remedy)
        if self._host.initialize_error:
            return WhyBlank(f"its host refused {self._host.initialize_error}", "correct the parameters")
        remedy = "connect to the host while the document loads, with the App of the SDK or by hand"
        return WhyBlank("it sent no ui/initialize", remedy)

    def _policy_reason(self, violation: str) -> WhyBlank:
        report = _VIOLATION.search(violation)
        sentence = violation[: report.end()] if report is not None else violation
        return WhyBlank(f"its policy stops it: {sentence}", self.remedy_of(violation))

    def remedy_of(self, violation: str) -> str:
        if self._csp == "spec":
            return 'this policy is for views that declare nothing; csp="declared" grants what the server declares'
        return policy_remedy(*_blocked_by(violation))


def _blocked_by(violation: str) -> tuple[str, str]:
    """Return the directive that forbids something, and the address that it forbids. Both may be empty."""
    report = _VIOLATION.search(violation)
    if report is None:
        return "", ""
    return report["directive"], report["address"] or ""


def _add_report(reports: list[str], text: str) -> None:
    max_reports = 100
    max_chars = 500
    if len(reports) < max_reports:
        reports.append(text[:max_chars])


#: Seconds after which a page that does not answer is given up.
_GRACE = 2.0
_LOOK = """async ({ quiet, longest }) => {
  await new Promise((done) => {
    const isTurning = () => document.getAnimations().some(({ playState }) => playState === "running"); // it loads
    const still = () => (isTurning() ? changed() : done());
    let timer = setTimeout(still, quiet);
    const changed = () => { clearTimeout(timer); timer = setTimeout(still, quiet); };
    const all = { subtree: true, childList: true, attributes: true, characterData: true };
    new MutationObserver(changed).observe(document, all);
    setTimeout(done, longest);
  });
  const DRAWN = "img,canvas,svg,video,audio[controls],iframe,object,embed,input,select,textarea,button,progress,meter";
  const VISIBLE = { opacityProperty: true, visibilityProperty: true };
  const shows = (root) => {
    if ((root.body ?? root.host ?? root).innerText?.trim()) return true;
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot && shows(element.shadowRoot)) return true;
      const box = element.getBoundingClientRect();
      if (!box.width || !box.height || !element.checkVisibility(VISIBLE)) continue;
      if (element.matches(DRAWN)) return true;
      const style = getComputedStyle(element);
      if (element !== document.body && element !== document.documentElement
          && (style.backgroundImage !== "none" || parseFloat(style.borderTopWidth) > 0)) return true;
      if (element.getRootNode() !== document && element.textContent.trim()) return true;
    }
    return false;
  };
  return shows(document);
}"""


async def is_blank(frame: Frame) -> bool:
    """Whether a document shows no text, picture, control or border.

    This waits until the document has not changed or moved for 0.3 s, three seconds at most. A document that cannot be
    examined, because its script never ends or because it has gone, counts as blank."""
    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(3.0 + _GRACE):
            return await frame.evaluate(_LOOK, {"quiet": 300, "longest": 3000}) is not True
    return True


async def syntax_errors(frame: Frame) -> dict[str, int]:
    """Return the line, counted from 1, of each error in the document's scripts. Only Chromium reports these lines, and
    Playwright does not pass them on."""
    line_of_error: dict[str, int] = {}

    def add_line(event: Any) -> None:
        details = event["exceptionDetails"]
        text = str(details.get("exception", {}).get("description", "")).partition("\n")[0]
        line_of_error[text] = details["lineNumber"] + 1

    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_GRACE):
            session = await frame.page.context.new_cdp_session(frame)
            session.on("Runtime.exceptionThrown", add_line)
            # When this is enabled, Chromium repeats the earlier exceptions.
            await session.send("Runtime.enable")
            await session.detach()
    return line_of_error
