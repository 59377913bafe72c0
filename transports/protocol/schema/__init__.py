"""JSON Schema, within bounds: the parameters and answers of a call against what the capability declares. No I/O.

* :mod:`.validate` — the two checks.
* :mod:`.limits` — the size of schemas and values; :mod:`.messages` — errors in words.
"""

from .validate import check_output, check_params

__all__ = ["check_output", "check_params"]
