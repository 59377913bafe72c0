"""All checks, by theme, in the order of the report."""

from __future__ import annotations

from .._evidence import Check
from . import (
    _answers as answers,
    _binaries as binaries,
    _discovery as discovery,
    _errors as errors,
    _page as page,
    _schemas as schemas,
    _session as session,
    _views as views,
    _webmcp as webmcp,
)

__all__ = ["ANSWERED_BY_KIT", "CHECKS", "VIEW_CHECKS", "WEBMCP_CHECKS"]

#: All checks. Their ids are stable.
CHECKS: tuple[Check, ...] = (
    *discovery.RULES,
    *page.RULES,
    *session.RULES,
    *schemas.RULES,
    *answers.RULES,
    *binaries.RULES,
    *errors.RULES,
)
#: Ids, and whole themes, of the checks of what this kit itself answers for an adapter (``adapter.js``).
#: Authors of adapters cannot change it.
ANSWERED_BY_KIT = frozenset(
    {
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
)
#: Checks of a page with WebMCP tools, which need not speak ABP.
WEBMCP_CHECKS: tuple[Check, ...] = (*webmcp.RULES, *schemas.RULES, *binaries.RULES)
#: Checks of an MCP server whose tools have views.
VIEW_CHECKS: tuple[Check, ...] = (*views.RULES,)
