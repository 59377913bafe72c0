"""Evidence of the calls of one session that has a page."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ...base import Transport
from ...protocol.secrets import KNOWN_SECRETS, KnownSecrets
from ..process.runfolder import RunFolder
from .kinds import EvidenceFile, EvidenceKind
from .recording import EXCLUSIVE, CallRecording

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["CallEvidence", "HasPage", "PageEvidence", "page_of"]


@runtime_checkable
class HasPage(Protocol):
    """A transport whose app is in a page."""

    @property
    def page(self) -> Page | None:
        """The page of ``playwright.async_api``; ``None`` while it is not open."""


def page_of(transport: Transport) -> HasPage | None:
    """Return the transport, or the one that it wraps (recorders do, and guards of secrets), if its app is in a page."""
    inner: object = transport
    while (wrapped := getattr(inner, "wrapped", None)) is not None:
        inner = wrapped
    return inner if isinstance(inner, HasPage) else None


class PageEvidence:
    """Records calls in the page of ``source``, in temporary files, without secrets: ``known`` are the values that
    the user of the session was given. Close it at the end of the session."""

    def __init__(self, source: HasPage, known: KnownSecrets = KNOWN_SECRETS) -> None:
        self._known = known
        self._source = source
        self._stack = contextlib.ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="evidence-", dir=self._stack.enter_context(RunFolder())))
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._numbers = itertools.count()
        #: Kinds that are recorded now: a trace, a video and a HAR can be of one call at a time.
        self.busy: set[EvidenceKind] = set()

    async def begin(self, kinds: Collection[EvidenceKind], title: str, params: object) -> CallEvidence:
        """Begin to record a call with these parameters, whose secrets are removed from all files."""
        page = self._source.page
        taken = {kind for kind in kinds if kind in EXCLUSIVE & self.busy}
        wanted = frozenset(kinds) - taken if page is not None else frozenset[EvidenceKind]()
        evidence = CallEvidence(self, wanted)
        evidence.notes += [f"{kind}: another call of this session was being recorded" for kind in sorted(taken)]
        if page is None:
            evidence.notes.append("the page was not open when the call began")
            return evidence
        self.busy |= EXCLUSIVE & wanted
        folder = self._folder / str(next(self._numbers))
        evidence.recording = recording = CallRecording(
            page, wanted, folder, title=title, params=params, known=self._known
        )
        try:
            await recording.start()
        except OSError as error:  # the call counts more than its evidence
            self.busy -= wanted
            evidence.recording = None
            evidence.notes.append(f"nothing can be recorded: {error.strerror or error}")
        except BaseException:
            self.busy -= wanted
            raise
        return evidence

    def close(self) -> None:
        """Remove the temporary files."""
        self._stack.close()


class CallEvidence:
    """The evidence of one call that runs. ``notes`` say what could not be had, and why."""

    def __init__(self, owner: PageEvidence, kinds: frozenset[EvidenceKind]) -> None:
        self._owner = owner
        self._kinds = kinds
        self.notes: list[str] = []
        self.recording: CallRecording | None = None

    async def end(self, keep: Collection[EvidenceKind]) -> list[EvidenceFile]:
        """End it, and return the files of the kinds to ``keep``; they are there until :meth:`discard`."""
        if self.recording is None:
            return []
        try:
            return await self.recording.end(keep)
        finally:
            self._owner.busy -= self._kinds
            self.notes += self.recording.notes

    def discard(self) -> None:
        """Remove the temporary files."""
        if self.recording is not None:
            shutil.rmtree(self.recording.folder, ignore_errors=True)
