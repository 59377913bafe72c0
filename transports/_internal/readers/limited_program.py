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
    cpu_seconds = int(sys.argv[1])
    max_memory = 1 << 30
    # The other program gets its own path and arguments.
    sys.argv = sys.argv[2:]
    with suppress(ImportError):
        import resource

        # macOS does not limit address space.
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
