"""All checks, by theme, in the order of the report."""

from __future__ import annotations

from .._evidence import Check
from . import _answers as answers
from . import _binaries as binaries
from . import _cancelling as cancelling
from . import _discovery as discovery
from . import _errors as errors
from . import _page as page
from . import _schemas as schemas
from . import _session as session
from . import _webmcp as webmcp
from . import _wire as wire

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
#: The checks of a page with WebMCP tools, which need not speak ABP.
WEBMCP_CHECKS: tuple[Check, ...] = (*webmcp.RULES, *schemas.RULES, *binaries.RULES)
