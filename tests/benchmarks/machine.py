"""What the figures were measured on, in general words."""

from __future__ import annotations

import importlib.metadata
import platform

import psutil

__all__ = ["machine"]


def machine(browser: str) -> dict[str, str]:
    """Names and versions; nothing that tells one machine from another of its kind."""
    return {
        "system": f"{platform.system()} {platform.machine()}, {psutil.cpu_count()} cores, "
        f"{round(psutil.virtual_memory().total / (1 << 30))} GB of memory",
        "Python": platform.python_version(),
        "Playwright": importlib.metadata.version("playwright"),
        "Chromium": browser,
        "load before the run": f"{psutil.getloadavg()[0]:.1f}",
    }
