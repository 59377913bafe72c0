"""Progress of calls and of runs in a notebook, as one display that is drawn anew."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, Self

from ._html import progress_html


class Reported(Protocol):
    """Progress as an app reports it; see :class:`transports.Progress`."""

    @property
    def call(self) -> str:
        """The id of the call, "" if it is unknown."""

    @property
    def fraction(self) -> float | None:
        """Completed fraction, 0 to 1."""

    @property
    def steps(self) -> tuple[float | None, float | None]:
        """Completed steps, and their number."""

    @property
    def text(self) -> str:
        """Stage and status."""


class ProgressBar:
    """Progress bar in a notebook, while its block lasts; a callback for ``on_progress=``::

        with ProgressBar("report") as bar:
            result = await app.call("report.build", on_progress=bar)

    Calls that run at the same time have a line each, 20 at most. The bar stays below the cell as it was at the end of
    the block. Outside of a notebook it shows nothing.
    """

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._lines: dict[str, tuple[float | None, str]] = {}
        self._started = self._drawn = time.monotonic()
        self._lock = threading.Lock()
        self._handle: Any = None
        self._ended = False

    def __enter__(self) -> Self:
        self._started, self._ended = time.monotonic(), False
        self._drawn = self._started
        # A kernel finds the cell of an output by the context, and callbacks run in that of the session.
        self._context = contextvars.copy_context()
        self._handle = _display_output(self._output())
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            self._draw()
            self._handle = None

    def __call__(self, progress: Reported) -> None:
        """Show the progress of a call or of a run, at most ten times a second."""
        max_lines = 20
        seconds_between_drawings = 0.1
        with self._lock:
            if progress.call in self._lines or len(self._lines) < max_lines:
                self._lines[progress.call] = progress.fraction, _progress_in_words(progress)
            if time.monotonic() - self._drawn >= seconds_between_drawings:
                self._draw()

    def _draw(self) -> None:
        """Draw the bar anew. The caller holds the lock."""
        self._drawn = time.monotonic()
        if self._handle is not None:
            self._context.run(self._handle.update, self._output(), raw=True)

    def _output(self) -> Mapping[str, str]:
        """Return the bar as HTML and as text."""
        seconds = time.monotonic() - self._started
        lines = list(self._lines.values()) or [(None, "")]
        html = progress_html(self._label, lines, seconds, ended=self._ended)
        texts = [self._label, *(words for _, words in lines)]
        plain = ", ".join(text for text in texts if text)
        return {"text/html": html, "text/plain": plain}


def _progress_in_words(progress: Reported) -> str:
    """Return progress in words, such as ``3 of 10 · rendering``."""
    completed, total = progress.steps
    if completed is None:
        return progress.text
    steps = f"{completed:,.0f}"
    if total == 100:
        steps += " %"
    elif total is not None:
        steps += f" of {total:,.0f}"
    return f"{steps} · {progress.text}" if progress.text else steps


def _display_output(output: Mapping[str, str]) -> Any:
    """Display an output in the cell that runs, and return its handle; ``None`` outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    # A shell without a kernel runs in a terminal, which cannot draw an output anew.
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    return import_module("IPython.display").display(dict(output), raw=True, display_id=True)
