"""Conformance check of an app against ABP (docs/protocol.md): ``abp conformance TARGET``, or :func:`check_app`.

First evidence is collected from the app, then the rules judge it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol._plain_text import redact_url
from ...protocol._strict_json import members_of
from . import _answer_checks, _call_checks, _session_checks, _view_checks
from ._evidence import Check, ConnectOptions, Evidence, Outcome, Plan, Report
from ._gather import gather

if TYPE_CHECKING:
    from ...playwright._browser import Browser
    from ...playwright._source import StorageState

__all__ = ["CHECKS", "VIEW_CHECKS", "WEBMCP_CHECKS", "Check", "Evidence", "Outcome", "Plan", "Report", "check_app"]

#: All checks of an app, in the order of the report. Their ids are stable.
CHECKS: tuple[Check, ...] = (
    *_session_checks.RULES,
    *_call_checks.SCHEMAS,
    *_answer_checks.ANSWERS,
    *_answer_checks.BINARIES,
    *_call_checks.ERRORS,
)
#: Checks of a page with WebMCP tools, which need not speak ABP.
WEBMCP_CHECKS: tuple[Check, ...] = (*_call_checks.WEBMCP, *_call_checks.SCHEMAS, *_answer_checks.BINARIES)
#: Checks of an MCP server whose tools have views.
VIEW_CHECKS: tuple[Check, ...] = (*_view_checks.RULES,)
#: Ids, and whole themes, of the checks of what this kit itself answers for an adapter (``adapter.js``).
#: Authors of adapters cannot change it.
_ANSWERED_BY_KIT = {
    "manifest",
    "wire",
    "cancel",
    "page.members",
    "page.describe",
    "page.supports",
    "page.list",
    "page.call",
    "session.initialize",
    "session.version",
    "session.features",
    "session.list",
    "session.early",
    "session.twice",
    "session.shutdown",
    "session.again",
    "session.reopened",
    "schema.alternatives",
    "answers.shape",
    "errors.unknown",
    "errors.missing",
    "errors.type",
    "errors.deprecated",
}


async def check_app(
    target: str,
    plan: Plan | None = None,
    *,
    transport: str = "auto",
    browser: Browser | str | None = None,
    storage_state: StorageState | None = None,
    adapter: str | Path | None = None,
    headless: bool | None = None,
    headers: Mapping[str, str] | None = None,
) -> Report:
    """Check the app at ``target`` against every rule, and return the report.

    ``target`` is ``http(s)://…`` (with ``transport="postmessage"`` embedded in an iframe), ``ws(s)://…``,
    ``extension:FOLDER`` or ``mcp+stdio:COMMAND``. A page is judged by its ``window.abp``, or without one by its WebMCP
    tools; ``"playwright"`` accepts only the first, ``"webmcp"`` only the second. An MCP server is judged by the rules
    for the views of its tools. ``plan`` restricts the capabilities that are called, for real.
    ``browser``, ``storage_state``, ``adapter``, ``headless`` and ``headers`` are those of :func:`transports.connect`.
    For the capabilities of an ``adapter``, the rules about what this kit itself answers are left out.

    A page that is not an app, or refuses to be initialized, is a finding, not an exception. Raises
    :class:`~transports.errors.UsageError` for an invalid target or option,
    :class:`~transports.errors.ConnectFailed` if nothing answers at ``target``, and
    :class:`~transports.errors.BrowserNotFound`.
    """
    started = time.perf_counter()
    options = ConnectOptions(
        transport=transport,
        browser=browser,
        storage_state=storage_state,
        adapter=adapter,
        headless=headless,
        headers=headers,
    )
    evidence = await gather(target, plan or Plan(), options)

    checks = {"webmcp": WEBMCP_CHECKS, "mcp": VIEW_CHECKS}.get(evidence.kind, CHECKS)
    judged = list(checks)
    if evidence.is_adapted:
        judged = [check for check in checks if not {check.id, check.theme} & _ANSWERED_BY_KIT]

    return Report(
        target=redact_url(target) or target,
        kind=evidence.kind,
        app=_name_and_version(evidence),
        outcomes=tuple(check.outcome(evidence) for check in judged),
        left_out=tuple(check.id for check in checks if check not in judged),
        called=tuple(dict.fromkeys(trial.name for trial, _ in evidence.called)),
        skipped={trial.name: trial.skipped for trial in evidence.trials if trial.skipped},
        seconds=time.perf_counter() - started,
    )


def _name_and_version(evidence: Evidence) -> str:
    app = members_of(evidence.session_info.get("app"))
    return " ".join(str(app[key]) for key in ("name", "version") if app.get(key))
