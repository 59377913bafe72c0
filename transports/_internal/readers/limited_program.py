"""Launcher of another Python program with limits of CPU time and memory.

Its arguments are the seconds of CPU time, the path of the other program, and the arguments for it. The limits are
needed because files of apps may attack their readers. Windows has no such limits; there the caller's deadline is the
only limit.
"""

from __future__ import annotations

import runpy
import sys
from contextlib import suppress


def main() -> None:
    """Set the limits of this process, and run the other program in it."""
    seconds, *sys.argv = sys.argv[1:]
    with suppress(ImportError):
        import resource

        with suppress(ValueError):  # macOS does not limit address space
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
