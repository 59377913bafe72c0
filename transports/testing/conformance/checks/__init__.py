"""All checks, by theme, in the order of the report."""

from __future__ import annotations

from ..rules import Check
from . import answers, binaries, cancelling, discovery, errors, page, schemas, session, wire

__all__ = ["CHECKS"]

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
