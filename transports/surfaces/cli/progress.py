"""The progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...protocol.plain_text import plain_line
from .output import is_dumb_terminal
from .verbosity import is_quiet

if TYPE_CHECKING:
    from ...protocol.payloads import Progress

__all__ = ["ProgressBar"]


class ProgressBar:
    """A progress bar on stderr while the context lasts, unless ``-q`` was given or stderr is no terminal that can
    draw one."""

    def __init__(self, label: str) -> None:
        #: The callback for progress; ``None`` without a bar.
        self.on_progress: Callable[[Progress], None] | None = None
        self._running = False
        if is_quiet() or sys.stderr is None or not sys.stderr.isatty() or is_dumb_terminal():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[stage]}", markup=False),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(plain_line(label), total=None, stage="")
        self.on_progress = self._update

    def __enter__(self) -> ProgressBar:
        if self.on_progress is not None:
            self._progress.start()
            self._running = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.on_progress is not None:
            self._progress.stop()
            self._running = False

    def set_label(self, label: str) -> None:
        """Begin again, under another label."""
        if self.on_progress is not None:
            self._progress.remove_task(self._task)
            self._task = self._progress.add_task(plain_line(label), total=None, stage="")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hide the bar while the block lasts."""
        running = self._running
        self.__exit__()
        try:
            yield
        finally:
            if running:
                self.__enter__()

    def _update(self, progress: Progress) -> None:
        stage = plain_line(progress.stage or progress.status or "")
        if progress.fraction is None:
            self._progress.update(self._task, stage=stage)
        else:
            self._progress.update(self._task, total=1.0, completed=progress.fraction, stage=stage)
