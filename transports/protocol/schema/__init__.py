"""JSON Schema, within bounds: the parameters and answers of a call against what the capability declares. No I/O.

* :mod:`.validate` — the checks; :mod:`.unnamed` — parameters that a schema does not name; :mod:`.files` — files that it
  declares.
* :mod:`.limits` — the size of schemas and values; :mod:`.messages` — errors in words.
"""

from .files import is_file
from .unnamed import unnamed_params
from .validate import check_output, check_params, check_value

__all__ = ["check_output", "check_params", "check_value", "is_file", "unnamed_params"]
