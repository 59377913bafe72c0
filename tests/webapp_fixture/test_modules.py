"""The page's modules, joined into the one script that it loads."""

import re
from pathlib import Path

import aiohttp
import pytest

from webapp_fixture import serve
from webapp_fixture.modules import joined
from webapp_fixture.pages import STATIC


async def test_page_loads_all_modules_in_one_request() -> None:
    async with serve() as fixture, aiohttp.ClientSession() as http:
        async with http.get(fixture.url) as response:
            (address,) = re.findall(r'<script type="module" src="/([^"]+)">', await response.text())
        async with http.get(fixture.url + address) as response:
            assert response.content_type == "text/javascript"
            script = await response.text()
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    names = re.findall(r"^// (\S+\.js)\nconst module\d+ = ", script, re.MULTILINE)
    assert len(names) == len(re.findall(r"^const module\d+ = ", script, re.MULTILINE)) > 30
    assert names.index("errors.js") < names.index("calls.js") < names.index("app.js") == len(names) - 1
    for path in (path for folder in ("capabilities", "lib", "protocol", "ui") for path in (STATIC / folder).iterdir()):
        assert path.name in names


def test_bundle_contains_module_once_before_its_importers(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text(
        "import { $, later } from './b.js';\nimport { Shape } from './c.js';\nlater($, Shape);\n"
    )
    (tmp_path / "b.js").write_text(
        "import { Shape } from './c.js';\nexport const $ = 1;\nexport async function later() {}\n"
    )
    (tmp_path / "c.js").write_text("class Shape {}\nexport { Shape };\n")
    script = joined(tmp_path / "a.js")
    assert re.findall(r"// (.)\.js\nconst (module.)", script) == [("c", "module0"), ("b", "module1"), ("a", "module2")]
    assert script.count("class Shape") == 1 and script.count("const { Shape } = module0;") == 2
    assert "const { $, later } = module1;" in script and "return { $, later };" in script


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("export default 1;", "cannot join 'export default 1;'"),
        ("export let counter = 1;", "cannot join"),
        ("import * as all from './other.js';", "cannot join"),
        ("  import { a } from './other.js';", "cannot join"),
        ("import { a as b } from './other.js';", "cannot join"),
        ("const a = 1;\nexport { a as b };", "cannot join"),
        ("import { a } from './entry.js';", "imports a module that imports it"),
    ],
)
def test_unjoinable_module_is_named_in_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "entry.js").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        joined(tmp_path / "entry.js")
