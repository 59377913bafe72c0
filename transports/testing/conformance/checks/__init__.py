"""All checks, by theme, in the order of the report."""

from __future__ import annotations

from ..evidence import Check
from . import answers, binaries, cancelling, discovery, errors, page, schemas, session, webmcp, wire

__all__ = ["CHECKS", "WEBMCP_CHECKS"]

#: All checks. Their ids are stable.
CHECKS: tuple[Check, ...] = (
    *discovery.RULES,
    *page.RULES,
    *session.RULES,
    *wire.RULES,
    *schemas.RULES,
    *answers.RULES,
    *binaries.RULES,
    *errors.RULES,
    *cancelling.RULES,
)
#: Checks of a page with WebMCP tools, which need not speak ABP.
WEBMCP_CHECKS: tuple[Check, ...] = (*webmcp.RULES, *schemas.RULES, *binaries.RULES)
