"""A program that runs another one with limits: its arguments are seconds of processor time, and the path and the
arguments of the other. Files come from apps and may be made to hurt their readers; Windows has no such limits, so there
the caller's deadline is the only one.
"""

from __future__ import annotations

import runpy
import sys
from contextlib import suppress

#: Bytes of address space.
_MEMORY = 1 << 30


def main() -> None:
    """Set the limits of this process, and become the other program."""
    seconds, *sys.argv = sys.argv[1:]
    with suppress(ImportError):
        import resource

        with suppress(ValueError):  # macOS limits no address space
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
