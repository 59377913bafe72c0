"""Looks of results, files, sessions and others in a notebook: tables that nothing of an app gets out of."""

from __future__ import annotations

import base64
import html.parser
import io
import os
import pickle
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

import transports.sync
from tests.conftest import Connect
from tests.support.web_client import running
from transports import ArtifactRef, LocalStore, MemoryTransport, Progress, ProgressBar, Result, Session, connect
from transports.artifacts._signing import Expired, Signer, signing_key
from transports.batch import Job, Pool, run
from transports.protocol._capabilities import Capabilities
from transports.protocol._declarations import Capability
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
        assert self.tags <= {"div", "strong", "table", "tr", "th", "td", "pre", "img", "a", "progress"}
        for name, value in self.attributes:
            assert name in {"style", "src", "alt", "href", "target", "rel", "max", "value"}, name
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


async def test_result_and_files_render_in_notebook(app_of: Connect) -> None:
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


async def painted(app_of: Connect, *files: tuple[bytes, str]) -> list[ArtifactRef]:
    """References to stored files with this content and these types."""

    async def paint(params: Mapping[str, object], call: Call) -> object:
        return [{"content": content, "mimeType": mime_type} for content, mime_type in files]

    async with app_of({"paint": paint}) as app:
        return [*(await app.call("paint")).artifacts.values()]


@pytest.mark.load
async def test_notebook_image_is_limited_and_matches_stored_content(app_of: Connect, tmp_path: Path) -> None:
    sizes = (512 << 10, (512 << 10) + 1, 16 << 20, (16 << 20) + 1)
    whole, smaller, largest, larger = await painted(
        app_of, *((PNG + bytes(size - len(PNG)), "image/png") for size in sizes)
    )
    assert len(whole._repr_mimebundle_()["image/png"]) > 512 << 10
    for ref in (smaller, largest):
        shown = ref._repr_mimebundle_()
        assert len(shown["image/png"]) < 1000 and f"base64,{shown['image/png']}" in shown["text/html"]
    assert "<img" not in larger._repr_html_() and "16,777,217 bytes" in larger._repr_html_()
    vector = replace(whole, mime_type="image/svg+xml")
    lost = replace(whole, local_path=str(tmp_path / "gone"))
    other = replace(whole, sha256="0" * 64)
    os.mkfifo(tmp_path / "pipe")
    pipe = replace(whole, local_path=str(tmp_path / "pipe"))
    changed = replace(smaller, sha256="0" * 64)
    for ref in (vector, lost, other, changed, pipe, replace(pipe, mime_type="text/plain")):
        assert "<img" not in ref._repr_html_() and [*ref._repr_mimebundle_()] == ["text/plain", "text/html"]


async def test_pdf_preview_shows_first_page(app_of: Connect) -> None:
    page = io.BytesIO()
    Image.new("RGB", (200, 300), (200, 30, 40)).save(page, "PDF")
    good, bad = await painted(app_of, (page.getvalue(), "application/pdf"), (b"%PDF-1.7 no pages", "application/pdf"))
    shown = good._repr_mimebundle_()
    assert Image.open(io.BytesIO(base64.b64decode(shown["image/png"]))).size == (480, 720)
    Seen(shown["text/html"]).check()
    assert "<img" not in bad._repr_html_()
    result = Result("x", None, {"bad": bad, "good": good})
    assert "<img" not in result._repr_html_()  # one process for each object, whatever becomes of it


async def test_slow_thumbnail_is_left_out(app_of: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    (ref,) = await painted(app_of, (b"%PDF-1.7 any", "application/pdf"))
    monkeypatch.setattr("transports._internal.readers._command", lambda *_: ["sleep", "60"])
    monkeypatch.setattr("transports._internal.notebook._SECONDS", 0.2)
    assert "<img" not in ref._repr_html_()
    assert [child for child in psutil.Process().children() if "sleep" in child.name()] == []


async def test_frozen_program_is_not_started_again_for_a_thumbnail(
    app_of: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ref,) = await painted(app_of, (b"%PDF-1.7 any", "application/pdf"))
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\ntouch "$0.started"\n')
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr("sys.frozen", True, raising=False)
    assert "<img" not in ref._repr_html_()
    assert not program.with_suffix(".started").exists()


@pytest.mark.parametrize("key", [None, "k" * 32])
async def test_notebook_links_to_download_when_store_is_served(
    app_of: Connect, key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if key is not None:
        monkeypatch.setenv("ABP_SERVE_KEY", key)
    (ref,) = await painted(app_of, (b"tea", "text/plain"))
    assert "download" not in ref._repr_html_()
    assert ref.path is not None
    async with running(LocalStore(tmp_path / "other"), key=key):
        assert "download" not in ref._repr_html_()
    async with LocalStore(ref.path.parent) as store, running(store, key=key) as web:
        addresses = [value for name, value in Seen(ref._repr_html_()).check().attributes if name == "href"]
        (address,) = (one for one in addresses if one.startswith(web.served.url))
        answer = await web.get(address, token=False)
        assert (answer.status, answer.body) == (200, b"tea")
        assert answer.headers["content-disposition"].startswith("attachment")
        signed = address.partition("link=")[2].partition("&")[0]
        assert Signer(key or signing_key(), clock=lambda: time.time() + 3590).is_link_to(signed, ref.id)
        with pytest.raises(Expired):
            Signer(key or signing_key(), clock=lambda: time.time() + 3610).is_link_to(signed, ref.id)
    assert "download" not in ref._repr_html_()


async def test_session_works_in_notebook(app_of: Connect, tmp_path: Path) -> None:
    async def info(params: Mapping[str, object], call: Call) -> object:
        return None

    app = app_of({EVIL: info, **{f"tool {n}": info for n in range(19)}})
    assert "new" in Seen(app._repr_html_()).check().words
    async with app:
        words = Seen(app._repr_html_()).check().words
        assert "open" in words and "memory" in words and "20: <script>" in words and "tool 6, …" in words
        blocking = transports.sync.Session(app)
        assert blocking._repr_html_() == app._repr_html_()
        (picture,) = await painted(app_of, (PNG, "image/png"))
        app._picture = picture
        assert "img" in Seen(app._repr_html_()).check().tags
    assert "closed" in Seen(app._repr_html_()).check().words


async def test_outcome_and_report_render_in_notebook(tmp_path: Path) -> None:
    jobs = [Job("make", {"files": ["picture"]}, "memory:", "one"), Job(EVIL, {}, "memory:", EVIL)]
    seen: list[Progress] = []

    def connect_memory(target: str, **options: Any) -> Session:
        return connect(target, transport=MemoryTransport({"make": made}), **options)

    async with Pool(1, 1, store=tmp_path / "out", connect=connect_memory) as pool:
        good, bad = [await pool.run(job) for job in jobs]
        report = await run(jobs, tmp_path / "run", pool=pool, on_progress=seen.append)
    shown = Seen(good._repr_html_()).check()
    assert "one" in shown.words and "succeeded" in shown.words and "img" in shown.tags
    shown = Seen(bad._repr_html_()).check()
    assert "failed" in shown.words and "[UNKNOWN_CAPABILITY]" in shown.words
    shown = Seen(report._repr_html_()).check()
    for words in ("2 jobs", "succeeded", "failed", "UNKNOWN_CAPABILITY", "manifest.jsonl"):
        assert words in shown.words
    assert (tmp_path / "run" / "report.json").as_uri() in [value for _, value in shown.attributes]
    assert [(one.steps, one.status) for one in (seen[0], seen[-1])] == [((0, 2), None), ((2, 2), "1 failed")]
    again = pickle.loads(pickle.dumps(report))
    assert again == report and again.folder == report.folder == tmp_path / "run"


def test_progress_bar_is_escaped_with_one_line_per_call() -> None:
    bar = ProgressBar(EVIL)
    with bar:  # outside of a notebook nothing is shown
        for n in range(25):
            bar(Progress(call=f"{n}", percentage=40, stage=EVIL))
        bar(Progress(call="3", progress=2, total=3))
        output = bar._output()
        endless = ProgressBar()
        with endless:
            endless(Progress(status="waiting"))
            assert "<progress" in endless._output()["text/html"]
    assert "waiting" in endless._output()["text/html"] and "<progress" not in endless._output()["text/html"]
    seen = Seen(output["text/html"]).check()
    assert seen.words.count("40 %") == 19 and "2 of 3" in seen.words
    assert ("value", "0.667") in seen.attributes and output["text/html"].count("<progress") == 20


def test_file_without_a_path_has_no_image_or_link_and_unstored_one_says_so() -> None:
    ref = ArtifactRef("truncated_1", "artifact://truncated_1", None, "a.txt", "text/plain", 3, "", {"truncated": True})
    assert repr(ref) == "<ArtifactRef 'a.txt', text/plain, 3 bytes, not stored>"
    assert "3 bytes, not stored" in Seen(ref._repr_html_()).check().words
    in_memory = ArtifactRef("a", "artifact://a", None, "dot.png", "image/png", len(PNG), "0" * 64)
    assert "<img" not in in_memory._repr_html_() and "<a " not in in_memory._repr_html_()


async def test_text_with_crlf_shows_its_lines(app_of: Connect) -> None:
    (ref,) = await painted(app_of, (b"a,b\r\n1,2\r\n", "text/csv"))
    assert Seen(ref._repr_html_()).check().words.endswith("a,b\n1,2\n")


def test_capabilities_render_in_notebook() -> None:
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


def test_capability_shows_nested_object_parameters() -> None:
    options = {"type": "object", "properties": {"format": {"type": "string"}}, "required": ["format"]}
    schema: dict[str, object] = {"properties": {"html": {"type": "string"}, "options": options}}
    markup = Capability(name="export.pdf", input_schema=schema)._repr_html_()
    rows = [Seen(row).words for row in markup.split("<tr>")[2:]]
    assert rows == ["htmlstring\n", "optionsobject\n", "options.formatstringyes\n"]


def test_a_long_answer_is_cut() -> None:
    result = Result("x", {"rows": [{"text": "y" * 5000}] * 500}, {}, warnings=(EVIL,) * 50)
    seen = Seen(result._repr_html_()).check()
    assert len(seen.words) < 10_000 and seen.words.count("Warning: ") == 10
    assert repr(result) == "<Result of x: 0 artifacts, 50 warnings>"
