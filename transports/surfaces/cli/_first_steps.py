"""``abp fixture``, ``abp demo`` and ``abp init``: the reference app, served or driven, and templates of projects."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import BinaryError, UsageError
from ..shared._listening import cannot_listen
from . import expect_signal
from ._options import OUT, Json, Port, local_folder, shell_word
from ._output import print_json, print_note, print_rows, print_text
from ._running import asynchronous

if TYPE_CHECKING:
    from ...artifacts._ref import ArtifactRef
    from ...routing._result import Result
    from ...session._session import Session


@asynchronous
async def demo(
    output: Annotated[
        Path | None, typer.Option(*OUT, metavar="DIR", parser=local_folder, help="Folder for the files.")
    ] = None,
    megabytes: Annotated[int, typer.Option("--megabytes", min=1, max=512, help="Size of the large file.")] = 32,
) -> int:
    """Drive the reference app and show the resulting files.

    Sixteen calls with real input over all three transports; every file is read again and checked.
    """
    from webapp_fixture import serve

    from ...session._connect import connect

    with as_file(files("webapp_fixture") / "samples") as samples:
        print_note("starting Workbench and a browser …")
        async with serve() as served:
            results: list[Result] = []
            async with connect(served.url, store=output) as app:
                await _make_all_calls(app, samples, megabytes, results)
            async with connect(served.ws_url, transport="websocket", store=output) as app:
                await _repeat_two_calls(app, megabytes, results)
            async with connect(served.embed_url, transport="postmessage", store=output) as app:
                await _repeat_two_calls(app, megabytes, results)
    _print_results(results)
    return _check_files(results)


def _check_files(results: Sequence[Result]) -> int:
    """Read all files again, print whether they are as they were stored, and return the exit status."""
    refs = [ref for result in results for ref in result.artifacts.values()]
    table = next(result.artifacts["file"] for result in results if result.capability == "data.csv")
    print_text(f"data.csv is the same file over every transport: sha256 {table.sha256}")

    # The same content under one name is one file.
    ref_by_path = {ref.path: ref for ref in refs}
    size = sum(ref.size_bytes for ref in ref_by_path.values())
    folder = (refs[0].path or Path()).parent
    print_text(f"{len(refs)} results of {len(results)} calls, in {len(ref_by_path)} files, {size:,} bytes, in {folder}")

    damaged_refs = [ref for ref in refs if not _is_intact(ref)]
    for ref in damaged_refs:
        print_text(f"NOT AS STORED: {ref.path}")
    if damaged_refs:
        print_text("some files differ")
        return 1
    print_text("each was read again: its size and SHA-256 are those of its reference")
    return 0


#: Parameters sent over every transport; the resulting files must be equal.
_TABLE: Mapping[str, object] = {"rows": [{"product": "tea", "sold": 12}, {"product": "coffee", "sold": 30}]}


async def _call_and_collect(app: Session, results: list[Result], capability: str, params: Mapping[str, object]) -> Any:
    all_calls = 16
    print_note(f"[{len(results) + 1}/{all_calls}] {capability} …")
    results.append(await app.call(capability, params))
    return results[-1].data


async def _call_large(app: Session, results: list[Result], params: Mapping[str, object]) -> None:
    data = await _call_and_collect(app, results, "file.generate", {"digest": True, **params})
    if data["sha256"] != results[-1].artifacts["file"].sha256:
        raise BinaryError("the large file differs from what the app made; please report it")


async def _repeat_two_calls(app: Session, megabytes: int, results: list[Result]) -> None:
    first = next(result for result in results if result.capability == "data.csv")
    await _call_and_collect(app, results, "data.csv", _TABLE)
    if results[-1].artifacts["file"].sha256 != first.artifacts["file"].sha256:
        raise BinaryError(f"{app.transport.name} and {first.transport} gave different files; please report it")
    await _call_large(app, results, {"megabytes": megabytes, "seed": 3, "filename": f"large-{app.transport.name}.bin"})


async def _make_all_calls(app: Session, samples: Path, megabytes: int, results: list[Result]) -> None:
    from importlib.metadata import metadata  # late: it takes 20 ms to load

    readme = str(metadata("abp-transports").json["description"])
    sales = (samples / "sales.csv").read_text(encoding="utf-8")

    async def step(capability: str, params: Mapping[str, object]) -> Any:
        return await _call_and_collect(app, results, capability, params)

    # Comments in the readme are marks for package registries, and the app would show them.
    readme = re.sub(r"<!--.*?-->\n*", "", readme)
    await step("convert.markdownToHtml", {"markdown": readme, "title": "README"})
    html = Path(results[-1].artifact().path or "").read_text(encoding="utf-8")
    await step("export.pdf", {"html": html, "title": "README"})
    await step("chart.render", {"csv": sales, "type": "bar", "format": "png", "title": "Sales"})
    await step("chart.render", {"csv": sales, "type": "line", "format": "webp", "as": "base64"})
    await step("image.resize", {"image": samples / "picture.png", "width": 320, "format": "jpeg"})
    await step("audio.tone", {"frequency": 440, "seconds": 1})
    await step("archive.gzip", {"text": readme})
    await step("data.json", {"csv": sales})
    await step("data.csv", _TABLE)
    await step("export.pages", {"count": 3})
    await _call_large(app, results, {"megabytes": megabytes, "as": "buffer", "seed": 1, "filename": "large-inline.bin"})
    url = {"as": "url", "auth": "bearer", "seed": 2, "filename": "large-download.bin"}
    await _call_large(app, results, {"megabytes": megabytes, **url})


def _print_results(results: list[Result]) -> None:
    rows = [("capability", "transport", "type", "bytes", "ms", "file")]
    for result in results:
        for ref in result.artifacts.values():
            kind = ref.mime_type.removeprefix("application/")
            file = os.path.relpath(ref.path) if ref.path else ref.uri
            # For a file outside of the working folder, the whole path is clearer than a relative one.
            if file.startswith(".."):
                file = str(ref.path)
            size = f"{ref.size_bytes:,}"
            rows.append((result.capability, result.transport, kind, size, f"{result.duration_ms:,.0f}", file))
    print_rows(rows, numbers=(3, 4))


def _is_intact(ref: ArtifactRef) -> bool:
    if ref.path is None:
        return False
    with ref.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == ref.sha256


#: Labels of the reference app's addresses, by their names in the JSON document.
_ADDRESSES = {
    "url": "Workbench",
    "strict_url": "with a strict content policy",
    "embed_url": "for an iframe",
    "ws_url": "over a WebSocket",
    "other_origin": "on a second origin",
}


@asynchronous
async def fixture(
    port: Port = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Serve the reference app, Workbench, until Ctrl-C."""
    from webapp_fixture import serve

    try:
        async with serve(port=port) as served:
            if as_json:
                print_json({name: getattr(served, name) for name in _ADDRESSES})
            else:
                for name, label in _ADDRESSES.items():
                    print_text(f"{label + ':':<30} {getattr(served, name)}")
                print_text(f"{'with faults, for tests:':<30} {served.url}?faults")
                print_text("Ctrl-C ends it.")
            expect_signal()
            await asyncio.Event().wait()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise cannot_listen("127.0.0.1", port, error, "--port") from error


#: Target in the templates, which ``--target`` replaces.
_TARGET = "http://127.0.0.1:8000/"
# Commands to copy have no comments: zsh takes none at its prompt.
_AFTER_APP = """\
Next:
  cd {folder}
  pip install 'abp-transports[test]'
  python serve.py 8001 &
  pytest
  abp call http://127.0.0.1:8001/ notes.pdf
  abp conformance http://127.0.0.1:8001/"""
_AFTER_VIEW = """\
Next:
  cd {folder}
  pip install 'abp-transports[mcp,test]'
  pytest
  abp view 'mcp+stdio:python server.py' greet -p name=Ada --screenshot card.png
  abp conformance 'mcp+stdio:python server.py'"""
_AFTER_ADAPTER = """\
Next:
  cd {folder}
  pip install 'abp-transports[test]'
  python -m http.server 8001 --bind 127.0.0.1 &
  pytest
  abp call http://127.0.0.1:8001/page.html table.csv --adapter table.js"""
_AFTER_TESTS = """\
Next; with --abp-headed, pytest shows the browser:
  cd {folder}
  pip install 'abp-transports[test]'
  pytest"""
_AFTER_CONFIG = """\
Next, edit abp.toml, which explains itself; an editor with TOML completes it by abp.schema.json.
Then confirm that the file is yours:
  cd {folder}
  abp mcp --trust"""

init = typer.Typer(
    help="Write a first app, view, adapter, test or settings file.", add_completion=False, rich_markup_mode=None
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)]


@init.command("app")
def init_app(folder: Folder, as_json: Json = False) -> int:
    """Write a small app that speaks ABP into a folder.

    Its server and its tests come with it."""
    return _write_project("new_app", folder, _AFTER_APP, as_json=as_json)


@init.command("view")
def init_view(folder: Folder, as_json: Json = False) -> int:
    """Write an MCP server with a tool and its view into a folder.

    A test of the view comes with it."""
    return _write_project("new_view", folder, _AFTER_VIEW, as_json=as_json)


@init.command("adapter")
def init_adapter(folder: Folder, as_json: Json = False) -> int:
    """Write an adapter, which makes an app of any page, into a folder.

    A page to try it on and a test come with it."""
    return _write_project("new_adapter", folder, _AFTER_ADAPTER, as_json=as_json)


@init.command("tests")
def init_tests(
    folder: Folder,
    target: Annotated[str, typer.Option("--target", metavar="TARGET", help="The app.")] = _TARGET,
    as_json: Json = False,
) -> int:
    """Write tests of an existing app into a folder."""
    return _write_project("new_tests", folder, _AFTER_TESTS, as_json=as_json, target=target)


@init.command("config")
def init_config(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder (default: this one).")] = Path(),
    as_json: Json = False,
) -> int:
    """Write abp.toml, a settings file, and its schema.

    Every setting is explained in it, and none is set."""
    return _write_project("new_config", folder, _AFTER_CONFIG, as_json=as_json, allow_files=True)


def _write_project(
    kind: str, folder: Path, next_steps: str, *, as_json: bool, target: str = _TARGET, allow_files: bool = False
) -> int:
    """Copy the templates of a ``kind`` into a folder, with ``target`` as the address of the app, and print the
    ``next_steps``. With ``allow_files`` the folder may have other files."""
    is_new_or_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not allow_files and not is_new_or_empty:
        raise UsageError(f"{folder} exists and is not an empty folder; name a new one")
    templates = dict(_find_templates(files(__package__) / kind))
    for name in templates:
        if (folder / name).exists():
            raise UsageError(f"{folder / name} exists; move it away first")

    target_in_templates = json.dumps(_TARGET).encode()
    new_target = json.dumps(target, ensure_ascii=False).encode()
    try:
        for name, source in templates.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read_bytes().replace(target_in_templates, new_target))
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written ({error.strerror}); make room or the folder writable, or name another folder"
        ) from error

    if as_json:
        print_json({"success": True, "folder": str(folder.absolute()), "files": [*templates]})
    else:
        for name in templates:
            print_text(f"File saved: {folder / name}")
        if folder == Path():
            next_steps = next_steps.replace("  cd {folder}\n", "")
        print_text(next_steps.format(folder=shell_word(str(folder))))
    return 0


def _find_templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the name of each template, relative to the new folder, and the stored file."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _find_templates(entry, f"{prefix}{entry.name}/")
        else:
            # The suffix .txt keeps a stored serve.py from being a module of this package.
            yield prefix + entry.name.removesuffix(".txt"), entry
