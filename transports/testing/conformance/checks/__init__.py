"""Every check, by theme, in the order in which people read them."""

from __future__ import annotations

from ..rules import Check
from . import answers, binaries, cancelling, discovery, errors, page, schemas, session, wire

__all__ = ["CHECKS"]

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
