"""The facts that the checks judge: what the app answered, in the order in which it was asked. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Literal, TypeAlias

from ...binary import BinaryData
from ...browser import extension_folder
from ...errors import ABPError, UsageError
from ...http import Discovery
from ...protocol import Capability, is_page
from ...protocol.messages import Effect, Sender
from ...session import Settings

#: How the app is reached. Some rules apply to some kinds only.
Kind: TypeAlias = Literal["page", "extension", "embedded", "websocket", "webmcp"]


@dataclass(slots=True)
class Exchange:
    """One request and its outcome: the ``answer`` as it came, with content in its places, or the ``error`` that stood
    in the way. One that was never made has neither.

    ``seconds`` is how long it took, ``effects`` what the app did beside answering, ``progress`` the payloads that came
    meanwhile, as they came, ``outputs`` the number of files captured beside the answer, such as a printed page, and
    ``sender`` the document that answered, if it is known.
    """

    answer: object = None
    error: ABPError | None = None
    seconds: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    progress: list[object] = field(default_factory=list)
    outputs: int = 0
    sender: Sender | None = None

    @property
    def fields(self) -> Mapping[str, object]:
        """The answer if it is an object, else an empty one."""
        return self.answer if isinstance(self.answer, Mapping) else {}

    @property
    def succeeded(self) -> bool:
        """Whether the answer says ``success: true``."""
        return self.fields.get("success") is True

    @property
    def code(self) -> object:
        """The code of the app's error, as the app wrote it; ``None`` without one."""
        error = self.fields.get("error")
        return error.get("code") if isinstance(error, Mapping) else None


@dataclass(slots=True)
class ContentItem:
    """One binary of an answer.

    ``place`` is its path in the data, ``node`` its descriptor as the app wrote it (empty where it has none), and
    ``binary`` the content that was recognised, if it could be read at all. ``size`` in bytes and ``head``, the first
    4 KiB, are those of the content itself; ``error`` is why it could not be taken. Of a download, ``attempts`` counts
    the requests, ``left_origin`` says whether credentials were asked for and a redirect led to another origin, and
    ``expires_in`` is the seconds that it had left when it was begun (``None`` without ``expiresAt``).
    """

    place: str
    node: Mapping[str, object]
    binary: BinaryData | None
    error: ABPError | None = None
    size: int = 0
    head: bytes = b""
    attempts: int = 1
    left_origin: bool = False
    expires_in: float | None = None


@dataclass(slots=True)
class Trial:
    """One capability that was tried, or why it was ``skipped``.

    ``entry`` is the capability as the app listed it. ``call`` was made with ``params``; ``without_required`` and
    ``with_wrong_type`` are a parameter's name and the call that lacked it, or that gave it a value of another type.
    """

    capability: Capability
    entry: Mapping[str, object]
    skipped: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    call: Exchange | None = None
    contents: list[ContentItem] = field(default_factory=list)
    without_required: tuple[str, Exchange] | None = None
    with_wrong_type: tuple[str, Exchange] | None = None

    @property
    def name(self) -> str:
        """The capability's name."""
        return self.capability.name


@dataclass(slots=True)
class Cancellation:
    """A call that was cancelled while it ran: the answers to the ``first`` cancel, to cancelling ``again``, and of the
    ``call`` itself, which ended ``ran_on`` seconds after the first of them."""

    name: str
    first: Exchange
    again: Exchange
    call: Exchange
    ran_on: float


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """The result of one step of the page probe: a JSON ``value``, or what was thrown, as text."""

    value: object = None
    threw: str | None = None


@dataclass(slots=True)
class Evidence:
    """Everything that was seen of the app at ``target``.

    Exchanges that were not reached stay empty. ``timeout`` in seconds is what each call was given. ``open_error`` says
    why the app could not be reached or initialized; then the rest is empty. ``page_steps`` are the results of the page
    probe by name, ``None`` where there is no page object. ``transport_findings`` are faults of frames and of posted
    messages, in words. ``tool_facts`` are ``{tools, forms, api, secure}`` of a page with WebMCP tools, as its script
    ``webmcp_tools.js`` inspects them after the calls.
    """

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
    initialize_after_shutdown: Exchange = field(default_factory=Exchange)
    initialize_on_new_connection: Exchange = field(default_factory=Exchange)
    page_steps: Mapping[str, ProbeStep] | None = None
    effects_outside_calls: list[Effect] = field(default_factory=list)
    transport_findings: list[str] = field(default_factory=list)
    tool_facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def session_info(self) -> Mapping[str, object]:
        """The answer to ``initialize``, if it is an object. One wrapped as ``{success, data}`` is unwrapped
        (docs/protocol.md 2.6)."""
        answer = self.initialize_answer if isinstance(self.initialize_answer, Mapping) else {}
        data = answer.get("data")
        return data if isinstance(data, Mapping) and "sessionId" not in answer else answer

    @property
    def called(self) -> list[tuple[Trial, Exchange]]:
        """The trials that were called, each with its exchange."""
        return [(trial, trial.call) for trial in self.trials if trial.call is not None]

    @property
    def contents(self) -> list[tuple[str, ContentItem]]:
        """Every binary of every answer, each with a name for people: capability and place."""
        return [
            (f"{trial.name}: {item.place or 'the answer'}", item) for trial in self.trials for item in trial.contents
        ]


class Plan:
    """What a check may do.

    ``timeout`` in seconds is what each call is given. ``only`` and ``skip`` are patterns (``export.*``) of the
    capabilities to call and to leave out; with ``calls=False`` none is called. ``on_step`` is called with the name of
    what is checked next: ``session``, a capability.
    """

    def __init__(
        self,
        *,
        timeout: float = 5.0,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        calls: bool = True,
        on_step: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.timeout, self.only, self.skip, self.calls, self.on_step = timeout, only, skip, calls, on_step
        #: Whether downloads may go to private addresses (``ABP_ALLOW_PRIVATE_ADDRESSES``).
        self.allow_private = Settings.load().allow_private_addresses

    def excluded(self, name: str) -> str:
        """Return why a capability is not to be called, or an empty text if it is."""
        if not self.calls:
            return "no capability was to be called"
        if self.only and not _matches(name, self.only):
            return "only others were to be called"
        return "it was to be skipped" if _matches(name, self.skip) else ""


def kind_of(target: str, transport: str) -> Kind:
    """Return how ``target`` is reached; a ``"page"`` may turn out to have tools only (``"webmcp"``). Raises
    :class:`~transports.errors.UsageError` for a target that is no app, or that ``transport`` does not reach."""
    if extension_folder(target) is not None:
        found: Kind = "extension"
    elif target.lower().startswith(("ws://", "wss://")):
        found = "websocket"
    elif is_page(target):
        found = {"postmessage": "embedded", "webmcp": "webmcp"}.get(transport, "page")  # type: ignore[assignment]
    else:
        raise UsageError(
            f"{target!r} is no app; give http(s)://…, ws(s)://… or extension:FOLDER; a file has to be served"
        )
    names = {"page": "playwright", "extension": "playwright", "embedded": "postmessage", "websocket": "websocket"}
    names["webmcp"] = "webmcp"
    if transport not in ("auto", names[found]):
        raise UsageError(
            f"{target!r} cannot be reached by {transport!r}; leave --transport out, or say {names[found]!r}"
        )
    return found


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


#: How strict a rule is (RFC 2119). An app that breaks a MUST does not conform; a broken SHOULD is a warning.
Level: TypeAlias = Literal["MUST", "SHOULD"]
Status: TypeAlias = Literal["passed", "failed", "warning", "not-applicable"]
#: Yields what breaks the rule, in words; nothing if the rule is kept. May raise :class:`NotApplicable`.
Judge: TypeAlias = Callable[[Evidence], Iterable[str]]

#: Findings that are reported of one check; an app with a hundred capabilities may break a rule a hundred times.
_MAX_FINDINGS = 8
#: Characters of one finding.
_MAX_LENGTH = 300


class NotApplicable(Exception):
    """There is nothing to judge; the message says why. Raised by judges."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check. ``findings`` are what broke the rule, each once and at most eight of them, or why the
    rule does not apply."""

    check: Check
    status: Status
    findings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON values; ``fix`` only where something is to be fixed."""
        fix = {"fix": self.check.fix} if self.status in ("failed", "warning") else {}
        about = {"id": self.check.id, "level": self.check.level, "title": self.check.title}
        return {**about, "source": self.check.source, "status": self.status, "findings": list(self.findings), **fix}


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. ``id`` is ``theme.name``; ``source`` cites the sections of docs/protocol.md, or the RFC, where the rule
    stands; ``fix`` tells the author of an app what to do."""

    id: str
    level: Level
    title: str
    source: str
    fix: str
    judge: Judge

    @property
    def theme(self) -> str:
        """The first part of the id: ``session``, ``binary``."""
        return self.id.partition(".")[0]

    def outcome(self, evidence: Evidence) -> Outcome:
        """Judge the evidence."""
        try:
            findings = tuple(dict.fromkeys(map(_one_line, islice(self.judge(evidence), 10 * _MAX_FINDINGS))))
        except NotApplicable as reason:
            return Outcome(self, "not-applicable", (str(reason),))
        if not findings:
            return Outcome(self, "passed")
        more = (f"… and {len(findings) - _MAX_FINDINGS} more",) if len(findings) > _MAX_FINDINGS else ()
        return Outcome(self, "failed" if self.level == "MUST" else "warning", (*findings[:_MAX_FINDINGS], *more))


class Rules(list[Check]):
    """The checks of one theme. Called, it is a decorator that adds a judge as a check."""

    def __call__(self, id: str, level: Level, title: str, *, source: str, fix: str) -> Callable[[Judge], Judge]:
        def add(judge: Judge) -> Judge:
            self.append(Check(id, level, title, source, fix, judge))
            return judge

        return add


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…"
