"""The page about views, followed word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: A block of the page, and the name of the file that the line before it says it is.
_BLOCK = re.compile(r"(?:^`([\w.]+)`\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.browser


def ran(script: str, folder: Path) -> str:
    """What a command of the page prints. Its folder is elsewhere, so it is a test of the installed package."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "ABP_OUTPUT_DIR": str(folder / "out"), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_views_page_steps_produce_tested_view(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "views.md").read_text(encoding="utf-8")
    blocks = _BLOCK.findall(page)
    assert page.count("\n```") == 2 * len(blocks) and {language for _, language, _ in blocks} == {"sh", "python"}
    (install, *scripts) = [text for name, language, text in blocks if language == "sh" and not name]
    assert install.startswith("pip install 'abp-transports[mcp,test]'\n") and "abp init view card" in install
    ran("abp init view .", tmp_path)
    printed = []
    for name, _, text in blocks:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
        elif text in scripts:
            printed.append(ran(text, tmp_path))
            if "test_card.py" in text:
                (tmp_path / "server.py").rename(tmp_path / "server.py.away")  # the recording needs none
            elif "test_recorded.py" in text:
                (tmp_path / "server.py.away").rename(tmp_path / "server.py")
    seen, tested, recorded, pictured, looked, imitated = printed
    assert re.search(r"^  greet +Greet somebody on a card. \[view\]$", seen, re.MULTILINE)
    assert "\nview: Card 1.0 (ui://greeter/card.html)\ntools:\n  shout\n" in seen and seen.endswith(
        "screenshot: card.png\n"
    )
    assert (tmp_path / "card.png").read_bytes().startswith(b"\x89PNG")
    assert "2 passed" in imitated
    assert "1 passed" in tested and "1 passed" in recorded
    assert pictured.count("1 passed") == 2 and (tmp_path / "golden" / "card.png").is_file()
    assert looked.splitlines() == [
        "['greet']",
        "Card ['shout'] {'text': 'Hello, Bo!'}",
        "['download-file', 'size'] card.txt",
    ]
