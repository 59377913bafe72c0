"""The facts that the checks judge: what the app answered, in the order in which it was asked. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...binary import BinaryData
from ...errors import ABPError
from ...http import Discovery
from ...protocol.declarations import Capability
from ...protocol.messages import Effect, Sender

__all__ = ["Cancellation", "ContentItem", "Evidence", "Exchange", "Kind", "ProbeStep", "Trial"]

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
