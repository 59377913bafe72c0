"""Where the time of one call goes: named functions of the kit get a clock for the length of a block."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from transports.artifacts.local import _blobs as shelf, _store as staging
from transports.playwright import _agent as agent, _downloads as cdp_downloads, _downloads as growing

__all__ = ["PHASES", "clocked"]

#: Phase → the function that is it. They nest: the download waits for the browser, the commit hashes and syncs.
PHASES: dict[str, tuple[Any, str]] = {
    "download": (cdp_downloads.CdpDownloads, "_save"),
    "until it begins": (cdp_downloads.CdpDownloads, "_wait_for_start"),
    "move": (growing.GrowingFile, "take"),
    "in the page": (agent.PageAgent, "invoke"),
    "commit": (staging.LocalStaged, "commit"),
    "hash": (staging, "measure_file"),
    "all fsync": (os, "fsync"),
    "publish": (shelf.BlobStore, "publish"),
}


@contextlib.contextmanager
def clocked() -> Iterator[dict[str, float]]:
    """Seconds per phase. A function that the kit no longer has is left out."""
    spent: dict[str, float] = defaultdict(float)
    with contextlib.ExitStack() as stack:
        for name, (owner, attribute) in PHASES.items():
            original = getattr(owner, attribute, None)
            if original is not None:
                stack.enter_context(patch.object(owner, attribute, _clocked(original, name, spent)))
        yield spent


def _clocked(original: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(original):
        by_method = original.__name__ == "invoke"

        @functools.wraps(original)
        async def waiting(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return await original(*args, **kwargs)
            finally:
                # an agent's method by its name: the answer, making a URL and clicking it, letting go
                label = f"{name}: {args[1]}" if by_method else name
                spent[label] += time.perf_counter() - started

        return waiting

    @functools.wraps(original)
    def running(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent[name] += time.perf_counter() - started

    return running
