"""The files of the project that are made from its code. ``python -m tests.site.made`` writes them anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.site.commands import commands_page
from tests.site.error_codes import errors_page
from tests.site.man import manual
from tests.site.schema import schema

_ROOT = Path(__file__).parents[2]
_REFERENCE = _ROOT / "docs" / "reference"
#: Each file, and what makes its text.
MADE: Mapping[Path, Callable[[], str]] = {
    _ROOT / "docs" / "abp.1": manual,
    _REFERENCE / "commands.md": commands_page,
    _REFERENCE / "errors.md": errors_page,
    _ROOT / "transports" / "surfaces" / "cli" / "new_config" / "abp.schema.json": lambda: (
        json.dumps(schema(), indent=1, sort_keys=True) + "\n"
    ),
}


if __name__ == "__main__":
    for path, make in MADE.items():
        path.write_text(make(), encoding="utf-8")
