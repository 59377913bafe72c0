"""Does an app speak ABP as the protocol says? ``abp conformance TARGET``, and :func:`check_app` from Python.

* :mod:`.gather` — looking at the app: :mod:`.line`, :mod:`.wire`, :mod:`.probe`, :mod:`.inputs`, :mod:`.contents`.
* :mod:`.evidence` — what was seen; no I/O.
* :mod:`.checks` — the rules, by theme; no I/O.
* :mod:`.report` — what came of them; no I/O.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...protocol.urls import redact_url
from .checks import CHECKS
from .evidence import Evidence
from .gather import Plan, gather
from .report import Report
from .rules import Check, Outcome

if TYPE_CHECKING:
    from ...browser.process.launch import Browser
    from ...browser.source import StorageState

__all__ = ["CHECKS", "Check", "Evidence", "Outcome", "Plan", "Report", "check_app"]


async def check_app(
    target: str,
    plan: Plan | None = None,
    *,
    transport: str = "auto",
    browser: Browser | str | None = None,
    storage_state: StorageState | None = None,
) -> Report:
    """Check the app at ``target``: ``http(s)://…`` (with ``transport="postmessage"`` embedded), ``ws(s)://…`` or
    ``extension:FOLDER``. ``plan`` says what may be called; ``browser`` and ``storage_state`` are those of
    :func:`transports.connect`.

    An app that cannot be reached is a finding, not an exception. Raises :class:`~transports.errors.UsageError` for a
    target that makes no sense, and :class:`~transports.errors.BrowserNotFound`.
    """
    started = time.perf_counter()
    seen = await gather(target, plan or Plan(), transport=transport, browser=browser, storage_state=storage_state)
    about = seen.greeted.get("app")
    named = [str(about[key]) for key in ("name", "version") if key in about] if isinstance(about, dict) else []
    return Report(
        target=redact_url(target) or target,
        kind=seen.kind,
        app=" ".join(named),
        outcomes=tuple(check.outcome(seen) for check in CHECKS),
        called=tuple(dict.fromkeys(trial.name for trial, _ in seen.called)),
        skipped={trial.name: trial.skipped for trial in seen.trials if trial.skipped},
        seconds=time.perf_counter() - started,
    )
