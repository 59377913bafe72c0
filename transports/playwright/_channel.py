"""The contract of a channel into a page; :mod:`._channels` has the two implementations.

No method here has a deadline: callers wrap each in :meth:`PageAgent.with_deadline
<transports.playwright._agent.PageAgent.with_deadline>`.
"""

from __future__ import annotations

import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias

if TYPE_CHECKING:
    from playwright.async_api import Frame

#: Size of the paper in inches, unless the page names another.
A4_WIDTH, A4_HEIGHT = 8.27, 11.69

logger = logging.getLogger("transports.playwright")

#: An opaque origin (of a document that shares its origin with no other), as browsers spell it.
OPAQUE = "null"

#: Receiver of the output of a script of ours: a text, unless a script of the page has interfered.
OnEmit: TypeAlias = Callable[[object], None]
P = ParamSpec("P")


class PageObject:
    """A reference to an object in the page: a CDP object id, or Playwright's handle."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any) -> None:
        self.ref = ref


class DevTools(Protocol):
    """Protocol for a CDP session: Playwright's, or ours with a frame (:class:`~._channels.FrameSession`)."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a command and return its result."""

    def on(self, event: Any, f: Callable[[Any], None]) -> None:
        """Call ``f`` for each event of this name."""


@dataclass(eq=False, slots=True)
class FrameDocument:
    """A document in a frame of a page, and the ``channel`` to its agent.

    ``origin`` is reported by the browser, and ``OPAQUE`` for an opaque one. ``of_page`` is true if it is the page's
    own origin. ``url`` is the document's address, ``id`` the frame's id in CDP, ``frame`` Playwright's frame if known.
    """

    channel: Channel
    origin: str
    of_page: bool
    url: str
    id: str = ""
    frame: Frame | None = None


class FrameWatcher(Protocol):
    """Protocol for a receiver of events of the frames of a page. The browser, not the frame, names the document."""

    def came(self, document: FrameDocument) -> None:
        """Add a document that has an agent now."""

    def left(self, document: FrameDocument) -> None:
        """Forget a document that navigated or went away."""

    def emitted(self, document: FrameDocument, text: object) -> None:
        """Handle an output of the agent of a document."""


class Channel(ABC):
    """The channel to one page, or to one document in a frame, used by one agent.

    ``cdp`` is the page's CDP session, if the browser has CDP. ``agent`` is the agent of the current document, once it
    is known (:meth:`find_agent`).
    """

    cdp: DevTools | None = None
    agent: PageObject | None = None

    @abstractmethod
    async def install(
        self,
        source: str,
        late: str,
        binding: str,
        *,
        on_emit: OnEmit,
        on_document: Callable[[], None],
        now: bool,
        frames: FrameWatcher | None,
    ) -> None:
        """Run ``source`` before the first script of every later document, and with ``now`` ``late`` in the current one.

        Each is an expression whose value is the agent, or ``undefined`` in a frame. It emits text through the global
        function ``binding``, which calls ``on_emit``. ``on_document`` is called when the page begins a new document.
        With ``frames`` the documents in frames have agents too, and their events go to ``frames``. Raises
        :class:`~transports.errors.ProtocolError` if ``late`` throws.
        """

    @abstractmethod
    async def run(self, expression: str) -> None:
        """Evaluate an expression in the current document. Raises :class:`~transports.errors.ProtocolError` if it
        throws."""

    @abstractmethod
    async def find_agent(self) -> PageObject | None:
        """Return the agent of the current document, or ``None`` if it has none. Never returns while the page hangs."""

    @abstractmethod
    async def ping(self) -> None:
        """Return once the page's scripts have answered."""

    @abstractmethod
    async def invoke(self, agent: PageObject, method: str, args: Sequence[object], *, by_value: bool) -> Any:
        """Call a method of the agent. Raises :class:`~transports.errors.ProtocolError` if it throws."""

    @abstractmethod
    async def set_file(self, element: PageObject, path: Path) -> None:
        """Choose a local file for an ``<input type=file>``."""

    @abstractmethod
    async def release_object(self, page_object: PageObject) -> None:
        """Let the page collect an object as garbage."""

    @abstractmethod
    async def collect_garbage(self) -> None:
        """Free the memory of objects that the page no longer refers to."""

    @abstractmethod
    async def print_to_pdf(self, paper_height: float | None) -> str | bytes:
        """Print the page; return the PDF, or the name of a CDP stream with the PDF.

        ``paper_height`` is in inches; with ``None`` the page's own ``@page`` rules decide, or the paper is A4. Raises
        :class:`~transports.errors.UnsupportedBinary` if the browser makes no PDF.
        """

    def leave_out(self, document: FrameDocument) -> bool:
        """Disconnect a frame that harms the others. Returns ``False`` if the channel cannot do that."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Undo :meth:`install`, if the page is still there."""


def listener(handle: Callable[P, object]) -> Callable[P, None]:
    """Return ``handle`` as a listener that logs its exceptions.

    Playwright stores the exception of a listener and raises it in the *next* command, which belongs to another call. A
    bug of ours in one event must cost that event only.
    """

    @functools.wraps(handle)
    def listening(*args: P.args, **options: P.kwargs) -> None:
        try:
            handle(*args, **options)
        except Exception:
            logger.exception("an event of the page could not be handled; it is ignored")

    return listening


def listen(source: Any, event: str, handle: Callable[[Any], object]) -> None:
    """Register ``handle``, as a :func:`listener`, for an event of Playwright's ``source``, as long as ``source``
    lives."""
    source.on(event, listener(handle))
