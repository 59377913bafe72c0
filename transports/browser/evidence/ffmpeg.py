"""Finds the program that Playwright makes videos with."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

__all__ = ["find_ffmpeg", "no_ffmpeg"]


def find_ffmpeg() -> tuple[Path, bool]:
    """Return where Playwright looks for its ffmpeg, and whether it is there."""
    import playwright

    package = Path(playwright.__file__).parent / "driver" / "package"
    browsers = json.loads((package / "browsers.json").read_text(encoding="utf-8"))["browsers"]
    revision = next(one["revision"] for one in browsers if one["name"] == "ffmpeg")
    name = {"darwin": "ffmpeg-mac", "win32": "ffmpeg-win64.exe"}.get(sys.platform, "ffmpeg-linux")
    path = _registry(package) / f"ffmpeg-{revision}" / name
    return path, os.access(path, os.X_OK)


def no_ffmpeg() -> str:
    """Return what is missing for a video and how to get it, in words."""
    path, _ = find_ffmpeg()
    return (
        "a video needs Playwright's ffmpeg, which is not here: run `playwright install ffmpeg`, "
        f"or link an ffmpeg with VP9 to {path}"
    )


def _registry(package: Path) -> Path:
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if given == "0":
        return package / ".local-browsers"
    if given:
        return Path(given)
    if platform.system() == "Darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    if platform.system() == "Windows":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ms-playwright"
