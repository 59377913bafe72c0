"""Data types of the conformance check."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from xml.etree import ElementTree

from ...errors import ABPError, UsageError
from ...playwright._scripts import extension_folder
from ...protocol._capabilities import Discovery
from ...protocol._declarations import Capability
from ...protocol._plain_text import is_page, plain_line
from ...protocol._strict_json import members_of
from ...protocol.binary import BinaryData
from ...protocol.messages import PROTOCOL_VERSION, Effect, Sender, ServerCall
from ...session._settings import Settings
from ...session._targets import is_mcp_server

if TYPE_CHECKING:
    from ...playwright._browser import Browser
    from ...playwright._source import StorageState

#: Way to reach the app. Some rules apply only to some kinds.
Kind: TypeAlias = Literal["page", "extension", "embedded", "websocket", "webmcp", "mcp"]


class Finding(NamedTuple):
    """An empty ``fix`` stands for the advice of the rule itself."""

    text: str
    fix: str = ""


@dataclass(slots=True)
class Exchange:
    """The raw ``answer``, with its content, or an ``error``; neither if the request was never made. ``effects`` are the
    side effects, ``progress`` the raw payloads of progress events, ``outputs`` the number of files captured beside the
    answer, such as a printed page, and ``sender`` the document that answered, if known. ``server_call`` is what a view
    is shown of a call."""

    answer: object = None
    error: ABPError | None = None
    seconds: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    progress: list[object] = field(default_factory=list)
    outputs: int = 0
    sender: Sender | None = None
    server_call: ServerCall | None = None

    @property
    def fields(self) -> Mapping[str, object]:
        return members_of(self.answer)

    @property
    def succeeded(self) -> bool:
        return self.fields.get("success") is True

    @property
    def code(self) -> object:
        return members_of(self.fields.get("error")).get("code")


@dataclass(slots=True)
class ContentItem:
    """Content in an answer, as it was read. ``place`` is the path in the data, ``node`` the raw descriptor (empty
    without one), and ``binary`` the recognised content, if it could be read at all. ``size`` in bytes and ``head``, the
    first 4 KiB, are those of the content itself; ``error`` is the reason why it could not be read. For a download,
    ``attempts`` counts the requests, ``left_origin`` is true if it needed credentials and was redirected to another
    origin, and ``expires_in`` are the seconds left at its start (``None`` without ``expiresAt``)."""

    place: str
    node: Mapping[str, object]
    binary: BinaryData | None
    error: ABPError | None = None
    size: int = 0
    head: bytes = b""
    attempts: int = 1
    left_origin: bool = False
    expires_in: float | None = None


class FaultyCall(NamedTuple):
    """The parameter ``param`` has a fault, so that the app should refuse the call."""

    param: str
    exchange: Exchange


@dataclass(slots=True)
class Trial:
    """The calls of one capability. ``skipped`` is the reason why there are no calls. ``entry`` is the capability as
    listed by the app. ``call`` was made with ``params``. ``without_required`` is a call without a parameter,
    ``with_wrong_type`` one with a value of another type for it."""

    capability: Capability
    entry: Mapping[str, object]
    skipped: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    call: Exchange | None = None
    contents: list[ContentItem] = field(default_factory=list)
    without_required: FaultyCall | None = None
    with_wrong_type: FaultyCall | None = None

    @property
    def name(self) -> str:
        return self.capability.name


@dataclass(slots=True)
class Cancellation:
    """What became of a cancelled call. ``first`` and ``again`` answer two cancels of a running call. ``call`` ended
    ``ran_on`` seconds after the first of them."""

    name: str
    first: Exchange
    again: Exchange
    call: Exchange
    ran_on: float


@dataclass(frozen=True, slots=True)
class ProbeStep:
    value: object = None
    threw: str | None = None


@dataclass(slots=True)
class ViewTrial:
    """What one view did. ``opened`` is false if the document could not be shown at all. ``error`` is set if the view
    did not begin. ``messages`` are methods and parameters as the view sent them, ``malformed`` texts of messages that
    are not JSON-RPC. ``tools_answer`` is the answer to ``tools/list``, ``None`` if the view declares no tools.
    ``violations`` are the browser's reports about the view's policy. ``why_blank`` is the likely reason why it shows
    nothing; ``is_cut_off`` is true if that is the network, and not the view."""

    tool: str
    uri: str
    opened: bool = False
    error: ABPError | None = None
    messages: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    tools_answer: Exchange | None = None
    blank: bool = True
    violations: list[Finding] = field(default_factory=list)
    script_errors: list[str] = field(default_factory=list)
    why_blank: Finding = field(default_factory=lambda: Finding(""))
    is_cut_off: bool = False

    def asked(self, method: str) -> list[Mapping[str, object]]:
        return [params for sent, params in self.messages if sent == method]


@dataclass(slots=True)
class ServerViews:
    """What a server says of its views. ``tools`` are all tools as the server lists them, by name. ``resources`` are the
    entries of ``resources/list``, ``documents`` the answers to ``resources/read`` by address, ``results`` those of
    tools that succeeded, by name, as JSON values of MCP."""

    tools: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    resources: list[Mapping[str, object]] = field(default_factory=list)
    documents: dict[str, Exchange] = field(default_factory=dict)
    results: dict[str, Mapping[str, object]] = field(default_factory=dict)
    trials: list[ViewTrial] = field(default_factory=list)


@dataclass(slots=True)
class Evidence:
    """Evidence about the app at ``target``.

    Exchanges that were not reached stay empty. ``timeout`` in seconds is that of each call. ``open_error`` is set if
    the app could not be reached or initialized; the rest is empty then. ``page_steps`` are the results of the page
    probe by name, ``None`` without a page object. ``transport_findings`` describe faults of frames and of posted
    messages, ``untimed`` are the types of frames without a timestamp. ``tool_facts`` are ``{tools, forms, api,
    secure}`` of a page with WebMCP tools, inspected by the script ``webmcp_tools.js`` after the calls. ``views`` is
    filled for an MCP server only. ``is_adapted`` is true if this kit answers for the capabilities of an adapter."""

    target: str
    kind: Kind
    timeout: float
    discovery: Discovery | None = None
    open_error: ABPError | None = None
    call_before_initialize: Exchange = field(default_factory=Exchange)
    initialize_answer: object = None
    second_initialize: Exchange = field(default_factory=Exchange)
    listed: Exchange | None = None
    unknown_call: Exchange = field(default_factory=Exchange)
    trials: list[Trial] = field(default_factory=list)
    unknown_cancel: Exchange = field(default_factory=Exchange)
    cancellations: list[Cancellation] = field(default_factory=list)
    shutdowns: list[Exchange] = field(default_factory=list)
    call_after_shutdown: Exchange = field(default_factory=Exchange)
    cancel_after_shutdown: Exchange = field(default_factory=Exchange)
    initialize_after_shutdown: Exchange = field(default_factory=Exchange)
    initialize_on_new_connection: Exchange = field(default_factory=Exchange)
    page_steps: Mapping[str, ProbeStep] | None = None
    effects_outside_calls: list[Effect] = field(default_factory=list)
    transport_findings: list[str] = field(default_factory=list)
    untimed: list[str] = field(default_factory=list)
    tool_facts: Mapping[str, object] = field(default_factory=dict)
    views: ServerViews = field(default_factory=ServerViews)
    is_adapted: bool = False

    @property
    def session_info(self) -> Mapping[str, object]:
        """Answer to ``initialize`` if it is an object, unwrapped from ``{success, data}`` (docs/protocol.md 2.6)."""
        answer = members_of(self.initialize_answer)
        data = answer.get("data")
        if isinstance(data, Mapping) and "sessionId" not in answer:
            return data
        return answer

    def require_session(self) -> Mapping[str, object]:
        """Return :attr:`session_info`. Raise :class:`NotApplicable` if the app could not be initialized."""
        if self.open_error is not None:
            raise NotApplicable("the app could not be initialized")
        return self.session_info

    def require_calls(self) -> list[tuple[Trial, Exchange]]:
        """Return :attr:`called`. Raise :class:`NotApplicable` if no call was made."""
        if not self.called:
            raise NotApplicable("no capability was called")
        return self.called

    def require_contents(self) -> list[tuple[str, ContentItem]]:
        """Return :attr:`contents`. Raise :class:`NotApplicable` if no answer held any."""
        if not self.contents:
            raise NotApplicable("no answer held binary content")
        return self.contents

    @property
    def called(self) -> list[tuple[Trial, Exchange]]:
        return [(trial, trial.call) for trial in self.trials if trial.call is not None]

    @property
    def contents(self) -> list[tuple[str, ContentItem]]:
        """Binaries of all answers, each with a display name of capability and place."""
        return [
            (f"{trial.name}: {item.place or 'the answer'}", item) for trial in self.trials for item in trial.contents
        ]


@dataclass(kw_only=True, slots=True)
class Plan:
    """Plan of a conformance check: the capabilities to call.

    ``timeout`` in seconds is that of each call. ``only`` and ``skip`` are patterns (``export.*``) of the capabilities
    to call and to leave out; with ``calls=False`` none is called. ``on_step`` is called with the name of each next
    step: ``session``, a capability."""

    timeout: float = 5.0
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    calls: bool = True
    on_step: Callable[[str], object] = lambda _: None
    #: True if downloads from private addresses are allowed (``ABP_ALLOW_PRIVATE_ADDRESSES``).
    allow_private: bool = field(init=False, default_factory=lambda: Settings.load().allow_private_addresses)

    @property
    def open_timeout(self) -> float:
        """Seconds for reaching the app: a page may load slowly."""
        return max(self.timeout, 15.0)

    def excluded(self, name: str) -> str:
        if not self.calls:
            return "calls are turned off"
        if self.only and not any(fnmatchcase(name, pattern) for pattern in self.only):
            return "not among those to call"
        if any(fnmatchcase(name, pattern) for pattern in self.skip):
            return "excluded"
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectOptions:
    transport: str = "auto"
    browser: Browser | str | None = None
    storage_state: StorageState | None = None
    adapter: str | Path | None = None
    headless: bool | None = None
    headers: Mapping[str, str] | None = None


#: Keys of a tool's metadata in which earlier hosts read the address of its view.
LEGACY_VIEW_KEYS = ("ui/resourceUri", "openai/outputTemplate")


def view_address(tool: Mapping[str, Any]) -> object:
    """Return what a tool declares as the address of its view, whatever its type and scheme; ``None`` without one."""
    meta = members_of(tool.get("_meta"))
    addresses = [members_of(meta.get("ui")).get("resourceUri"), *(meta.get(key) for key in LEGACY_VIEW_KEYS)]
    return next((address for address in addresses if address is not None), None)


def view_addresses(tools: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    addresses = {name: view_address(tool) for name, tool in tools.items()}
    return {name: address for name, address in addresses.items() if address is not None}


def target_kind(target: str, transport: str) -> Kind:
    """A ``"page"`` may turn out to have only tools (``"webmcp"``)."""
    if extension_folder(target) is not None:
        kind: Kind = "extension"
    elif target.lower().startswith(("ws://", "wss://")):
        kind = "websocket"
    elif is_mcp_server(target):
        kind = "mcp"
    elif is_page(target):
        kind = {"postmessage": "embedded", "webmcp": "webmcp"}.get(transport, "page")  # type: ignore[assignment]
    else:
        raise UsageError(
            f"{target!r} is not an app; give http(s)://…, ws(s)://…, mcp+stdio:COMMAND or extension:FOLDER; a file has "
            "to be served"
        )

    # The transports of the other kinds have the names of the kinds.
    transports = {"page": "playwright", "extension": "playwright", "embedded": "postmessage"}
    name = transports.get(kind, kind)
    if transport not in ("auto", name):
        raise UsageError(f"{target!r} cannot be reached by {transport!r}; leave --transport out, or use {name!r}")
    return kind


#: Strictness of a rule (RFC 2119). An app that breaks a MUST does not conform. A broken SHOULD is a warning.
Level: TypeAlias = Literal["MUST", "SHOULD"]
Status: TypeAlias = Literal["passed", "failed", "warning", "not-applicable"]
#: Function that yields descriptions of breaches of a rule, nothing if it is kept. May raise :class:`NotApplicable`.
Judge: TypeAlias = Callable[[Evidence], Iterable[str | Finding]]


class NotApplicable(Exception):
    """Reason why a rule cannot be judged. Raised by judges."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one check. ``findings`` are breaches of the rule, each once and at most twenty, or the reason why the
    rule does not apply. ``fixes`` is the advice for the breaches."""

    check: Check
    status: Status
    findings: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON values, with ``fix`` only for breaches."""
        document: dict[str, object] = {
            "id": self.check.id,
            "level": self.check.level,
            "title": self.check.title,
            "source": self.check.source,
            "status": self.status,
            "findings": list(self.findings),
        }
        if self.fixes:
            document["fix"] = "; ".join(self.fixes)
        return document


@dataclass(frozen=True, slots=True)
class Check:
    """Rule and its judge. ``id`` is ``theme.name``, or ``APP-…`` for rules of MCP Apps, ``source`` cites sections of
    docs/protocol.md, an RFC or MCP Apps, ``fix`` is advice for the author of an app."""

    id: str
    level: Level
    title: str
    source: str
    fix: str
    judge: Judge

    @property
    def theme(self) -> str:
        """First part of the id: ``session``, ``binary``, ``APP``."""
        return self.id.partition(".")[0].partition("-")[0]

    def outcome(self, evidence: Evidence) -> Outcome:
        """Judge the evidence. Of many findings the first twenty are reported, each text once."""
        max_reported = 20
        max_judged = 10 * max_reported  # an app may give cause to any number
        fix_by_text: dict[str, str] = {}
        try:
            for finding in islice(self.judge(evidence), max_judged):
                if not isinstance(finding, Finding):
                    finding = Finding(finding)
                fix_by_text.setdefault(plain_line(finding.text, 300), finding.fix or self.fix)
        except NotApplicable as reason:
            return Outcome(self, "not-applicable", (str(reason),))

        if not fix_by_text:
            return Outcome(self, "passed")
        findings = [*fix_by_text][:max_reported]
        advice = tuple(dict.fromkeys(fix_by_text[text] for text in findings))
        if len(fix_by_text) > len(findings):
            findings.append(f"… and {len(fix_by_text) - len(findings)} more")
        status: Status = "failed" if self.level == "MUST" else "warning"
        return Outcome(self, status, tuple(findings), advice)


class Rules(list[Check]):
    """Checks of one theme. Its methods return a decorator that adds a judge as a check."""

    def must(self, id: str, title: str, *, source: str, fix: str) -> Callable[[Judge], Judge]:
        return partial(self._add, id, "MUST", title, source, fix)

    def should(self, id: str, title: str, *, source: str, fix: str) -> Callable[[Judge], Judge]:
        return partial(self._add, id, "SHOULD", title, source, fix)

    def _add(self, id: str, level: Level, title: str, source: str, fix: str, judge: Judge) -> Judge:
        self.append(Check(id, level, title, source, fix, judge))
        return judge


_MARKS: Mapping[Status, str] = {"passed": "ok  ", "failed": "FAIL", "warning": "warn", "not-applicable": "-   "}


@dataclass(frozen=True, slots=True)
class Report:
    """Outcomes of all checks of one app.

    ``target`` holds no credentials. ``app`` is the app's name and version. ``left_out`` are the ids of the checks of
    what this kit itself answers for an adapter. ``called`` are the capabilities that were called, ``skipped`` the
    others, each with the reason. ``seconds`` is the duration of the whole check."""

    target: str
    kind: Kind
    app: str
    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]
    called: tuple[str, ...]
    skipped: Mapping[str, str]
    seconds: float

    @property
    def why_unchecked(self) -> str | None:
        """Reason why no rule applies to the app, so that nothing was checked; ``None`` if something was."""
        if any(outcome.status != "not-applicable" for outcome in self.outcomes):
            return None
        return self.outcomes[0].findings[0]

    @property
    def conformant(self) -> bool:
        """True if something was checked, and no MUST is broken."""
        return self.why_unchecked is None and not self.with_status("failed")

    def with_status(self, status: Status) -> list[Outcome]:
        """Return the outcomes of one status, in the order of the checks."""
        return [outcome for outcome in self.outcomes if outcome.status == status]

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of checks by status, including statuses without checks."""
        numbers = Counter(outcome.status for outcome in self.outcomes)
        return {status: numbers[status] for status in _MARKS}

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values, with ``success`` true if the app conforms."""
        return {
            "success": self.conformant,
            "target": self.target,
            "kind": self.kind,
            "why_unchecked": self.why_unchecked,
            "app": self.app,
            "abp": PROTOCOL_VERSION,
            "counts": dict(self.counts),
            "checks": [outcome.as_dict() for outcome in self.outcomes],
            "left_out": list(self.left_out),
            "called": list(self.called),
            "skipped": dict(self.skipped),
            "seconds": round(self.seconds, 2),
        }

    def lines(self) -> Iterator[tuple[str, Status | None]]:
        """Yield the lines of the readable report, by theme, each with the status for its colour."""
        yield f"{self.app or self.target} ({self.kind})", None
        for theme, group in groupby(self.outcomes, key=lambda outcome: outcome.check.theme):
            yield f"\n{theme}", None
            for outcome in group:
                yield from _outcome_lines(outcome)

        if self.left_out:
            yield f"\nleft out, as the author of an adapter cannot change them: {', '.join(self.left_out)}", None

        skipped = [f"{name} ({reason})" for name, reason in self.skipped.items()]
        if skipped:
            max_skipped = 20
            more = " …" if len(skipped) > max_skipped else ""
            yield f"\nnot called: {', '.join(skipped[:max_skipped])}{more}", None
        else:
            yield "", None
        yield self._verdict_line()

    def _verdict_line(self) -> tuple[str, Status]:
        numbers = ", ".join(_count_in_words(status, number) for status, number in self.counts.items())
        totals = f"{numbers}, in {self.seconds:.1f} s"
        if self.why_unchecked is not None:
            return f"NOTHING WAS CHECKED: {self.why_unchecked}; {totals}", "failed"
        if self.conformant:
            return f"conformant: {totals}", "passed"
        return f"NOT CONFORMANT: {totals}", "failed"

    def junit(self) -> bytes:
        """Return the report as JUnit XML. A warning is a passed test with output; a rule not applicable is skipped."""
        counts = self.counts
        why_unchecked = self.why_unchecked
        errors = int(why_unchecked is not None)
        suite = ElementTree.Element(
            "testsuite",
            name=f"abp conformance {self.target}",
            tests=str(len(self.outcomes) + errors),
            failures=str(counts["failed"]),
            skipped=str(counts["not-applicable"]),
            errors=str(errors),
            time=f"{self.seconds:.2f}",
        )
        for outcome in self.outcomes:
            _add_case(suite, outcome)
        # Skipped tests alone would pass in a CI.
        if why_unchecked is not None:
            case = ElementTree.SubElement(suite, "testcase", classname="abp", name="conformance", time="0")
            ElementTree.SubElement(case, "error", message=_printable(f"nothing was checked: {why_unchecked}"))

        root = ElementTree.Element("testsuites")
        root.append(suite)
        return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))

    def badge(self) -> dict[str, object]:
        """Return the JSON for badge services (``schemaVersion`` 1)."""
        warnings = self.counts["warning"]
        if self.why_unchecked is not None:
            message, colour = "nothing was checked", "lightgrey"
        elif not self.conformant:
            message, colour = "not conformant", "red"
        elif warnings:
            message, colour = f"conformant ({_count_in_words('warning', warnings)})", "yellowgreen"
        else:
            message, colour = "conformant", "brightgreen"
        return {"schemaVersion": 1, "label": f"ABP {PROTOCOL_VERSION}", "message": message, "color": colour}


def _outcome_lines(outcome: Outcome) -> Iterator[tuple[str, Status | None]]:
    check = outcome.check
    yield f"  {_MARKS[outcome.status]}  {check.id:<18} {check.level:<6} {check.title}", outcome.status
    if outcome.status not in ("failed", "warning"):
        return
    details = [*outcome.findings, *(f"how to fix it: {fix}" for fix in outcome.fixes), f"source: {check.source}"]
    for detail in details:
        yield f"          {detail}", None


def _add_case(suite: ElementTree.Element, outcome: Outcome) -> None:
    check = outcome.check
    case = ElementTree.SubElement(suite, "testcase", classname=f"abp.{check.theme}", name=check.id, time="0")
    fixes = [f"how to fix it: {fix}" for fix in outcome.fixes]
    text = _printable("\n".join((*outcome.findings, *fixes, f"source: {check.source}")))

    if outcome.status == "failed":
        ElementTree.SubElement(case, "failure", message=f"{check.level}: {check.title}").text = text
    elif outcome.status == "not-applicable":
        ElementTree.SubElement(case, "skipped", message=_printable("; ".join(outcome.findings)))
    elif outcome.status == "warning":
        ElementTree.SubElement(case, "system-out").text = f"warning: {check.title}\n{text}"


def _count_in_words(status: Status, number: int) -> str:
    text = f"{number} {status.replace('-', ' ')}"
    if status == "warning" and number != 1:
        text += "s"
    return text


def _printable(text: str) -> str:
    """Replace the characters that XML 1.0 cannot hold."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\U0010ffff]", "\ufffd", text)
