"""The modules of the gallery's page."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

from transports.surfaces.web import _server as server

PAGE = Path(server.__file__).parent / "page"


def test_page_modules_have_no_circular_imports() -> None:
    imports = {
        path.name: re.findall(r"(?:from|import\() ?'\./(\w+\.js)'", path.read_text(encoding="utf-8"))
        for path in PAGE.glob("*.js")
    }
    assert "view.js" in imports["panel.js"] and "dom.js" in imports["app.js"]  # also on demand
    TopologicalSorter(imports).prepare()  # raises for a ring
