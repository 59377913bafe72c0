"""How a result, a file and capabilities look in a notebook: short texts, tables that nothing of an app gets out of."""

from __future__ import annotations

import base64
import html.parser
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.conftest import Connect
from transports import ArtifactRef, Result
from transports.protocol import Capabilities, Capability
from transports.testing import Call

#: One pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202e"


class Seen(html.parser.HTMLParser):
    """The elements of some markup, with their attributes, and its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data

    def check(self) -> Seen:
        """Nothing but tables, texts, links to files and pictures inside; no colour, which light or dark would hide."""
        assert self.tags <= {"div", "strong", "table", "tr", "th", "td", "pre", "img", "a"}
        for name, value in self.attributes:
            assert name in {"style", "src", "alt", "href", "target", "rel"}, name
            assert name != "src" or value.startswith("data:image/")
            assert name != "style" or ("url" not in value and "color" not in value and "background" not in value)
        assert not any(c in self.words for c in "\x1b\u202e")
        return self


async def made(params: Mapping[str, object], call: Call) -> object:
    files = {
        "picture": {"content": PNG, "mimeType": "image/png", "filename": "dot.png"},
        "report": {"content": b"Tea\n" * 100, "mimeType": "text/plain", "filename": f"{EVIL}.txt"},
    }
    return {"note": EVIL, **{name: files[name] for name in params.get("files", files)}}  # type: ignore[attr-defined]


async def test_a_result_and_its_files_in_a_notebook(app_of: Connect) -> None:
    async with app_of({"make": made}) as app:
        result = await app.call("make")
        without = await app.call("make", {"files": ["report"]})
    assert repr(result) == "<Result of make: 2 artifacts ('picture', 'report')>"
    picture, report = result.artifacts["picture"], result.artifacts["report"]
    assert repr(picture) == f"<ArtifactRef 'dot.png', image/png, {len(PNG)} bytes at {picture.local_path}>"
    for markup in (result._repr_html_(), picture._repr_html_()):
        seen = Seen(markup).check()
        assert "dot.png" in seen.words and "image/png" in seen.words and f"{len(PNG)} bytes" in seen.words
        assert ("src", f"data:image/png;base64,{base64.b64encode(PNG).decode()}") in seen.attributes
        links = [value for name, value in seen.attributes if name == "href"]
        assert Path(picture.local_path or "").as_uri() in links
    for shown in (result, picture):
        bundle = shown._repr_mimebundle_()
        assert bundle["text/plain"] == repr(shown) and base64.b64decode(bundle["image/png"]) == PNG
    lines = Seen(report._repr_html_()).check().words
    assert lines.count("Tea\n") == 20 and "image/png" not in report._repr_mimebundle_()
    told = Seen(without._repr_html_()).check()
    assert "<script>" in told.words and "img" not in told.tags


async def test_a_picture_has_a_limit_and_is_what_was_stored(app_of: Connect, tmp_path: Path) -> None:
    async def paint(params: Mapping[str, object], call: Call) -> object:
        size = params["size"]
        assert isinstance(size, int)
        return {"content": PNG + bytes(size - len(PNG)), "mimeType": "image/png"}

    async with app_of({"paint": paint}) as app:
        fits = (await app.call("paint", {"size": 512 << 10})).artifact()
        large = (await app.call("paint", {"size": (512 << 10) + 1})).artifact()
    assert "image/png" in fits._repr_mimebundle_() and "image/png" not in large._repr_mimebundle_()
    assert "<img" not in large._repr_html_() and "524,289 bytes" in large._repr_html_()
    vector = replace(fits, mime_type="image/svg+xml")
    lost = replace(fits, local_path=str(tmp_path / "gone"))
    other = replace(fits, sha256="0" * 64)
    os.mkfifo(tmp_path / "pipe")
    pipe = replace(fits, local_path=str(tmp_path / "pipe"))
    for ref in (vector, lost, other, pipe, replace(pipe, mime_type="text/plain")):
        assert "<img" not in ref._repr_html_() and [*ref._repr_mimebundle_()] == ["text/plain", "text/html"]


def test_a_file_that_was_not_stored_says_so() -> None:
    ref = ArtifactRef("truncated_1", "artifact://truncated_1", None, "a.txt", "text/plain", 3, "", {"truncated": True})
    assert repr(ref) == "<ArtifactRef 'a.txt', text/plain, 3 bytes, not stored>"
    assert "3 bytes, not stored" in Seen(ref._repr_html_()).check().words


def test_capabilities_in_a_notebook() -> None:
    entries = {f"c{n}": {"name": f"c{n}", "description": EVIL} for n in range(51)}
    many = Capabilities(entries)
    assert repr(many) == "<51 capabilities: 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', …>"
    seen = Seen(many._repr_html_()).check()
    assert "c49" in seen.words and "c50" not in seen.words and "… and 1 more" in seen.words
    assert repr(Capabilities()) == "<no capabilities>"
    schema: dict[str, object] = {"properties": {EVIL: {"type": EVIL, "description": EVIL}, "b": 7}, "required": [EVIL]}
    one = Capability(name=EVIL, description=EVIL * 500, input_schema=schema)
    assert len(repr(one)) < 300
    assert "yes" in Seen(one._repr_html_()).check().words
    assert len(one._repr_html_()) < 60_000


def test_a_long_answer_is_cut() -> None:
    result = Result("x", {"rows": [{"text": "y" * 5000}] * 500}, {}, warnings=(EVIL,) * 50)
    seen = Seen(result._repr_html_()).check()
    assert len(seen.words) < 10_000 and seen.words.count("Warning: ") == 10
    assert repr(result) == "<Result of x: 0 artifacts, 50 warnings>"


def test_nothing_of_it_is_loaded_before_a_notebook_asks() -> None:
    code = "import sys, transports\ntransports.Result, transports.ArtifactRef, transports.connect\n"
    code += "print('transports.notebook._html' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_content_in_memory_has_no_picture() -> None:
    ref = ArtifactRef("a", "artifact://a", None, "dot.png", "image/png", len(PNG), "0" * 64)
    assert "<img" not in ref._repr_html_() and "<a " not in ref._repr_html_()
