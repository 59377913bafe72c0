"""Names that are spelled like a wrong one, for "did you mean". No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

__all__ = ["similar_names"]

#: How many names are searched.
_MAX_SEARCHED = 5000
#: The likeness of :mod:`difflib`, 0 to 1, from which on a name is one that may have been meant.
_CUTOFF = 0.6


def similar_names(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return at most ``most`` of the ``known`` names that are spelled like ``name``, the nearest first. Case does not
    count."""
    folded = {one.casefold(): one for one in islice(known, _MAX_SEARCHED)}
    return [folded[one] for one in difflib.get_close_matches(name.casefold()[:200], folded, n=most, cutoff=_CUTOFF)]
