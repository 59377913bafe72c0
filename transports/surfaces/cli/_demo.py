"""``abp demo`` and ``abp fixture``: the reference app, driven with real input or served."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import BinaryError
from ..shared._listening import cannot_listen
from ._options import OUT, Port, local_folder
from ._output import print_json, print_note, print_text
from ._running import asynchronous
from ._signals import expect_signal

if TYPE_CHECKING:
    from rich.table import Table

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
    """Read all stored files again, print whether they are intact, and return the exit status."""
    refs = [ref for result in results for ref in result.artifacts.values()]
    table = next(result.artifacts["file"] for result in results if result.capability == "data.csv")
    print_text(f"data.csv is the same file over every transport: sha256 {table.sha256}")

    # The same content under one name is one file.
    stored = {ref.path: ref for ref in refs}
    size = sum(ref.size_bytes for ref in stored.values())
    folder = (refs[0].path or Path()).parent
    print_text(f"{len(refs)} results of {len(results)} calls, in {len(stored)} files, {size:,} bytes, in {folder}")

    damaged = [ref for ref in refs if not _is_intact(ref)]
    for ref in damaged:
        print_text(f"NOT AS STORED: {ref.path}")
    if damaged:
        print_text("some files differ")
        return 1
    print_text("each was read again: its size and SHA-256 are those of its reference")
    return 0


#: Parameters sent over every transport; the resulting files must be equal.
_TABLE: Mapping[str, object] = {"rows": [{"product": "tea", "sold": 12}, {"product": "coffee", "sold": 30}]}
#: Total number of calls, for the messages.
_CALLS = 16


async def _call(app: Session, results: list[Result], capability: str, params: Mapping[str, object]) -> Any:
    """Make a call, add its result to ``results``, and return its data."""
    print_note(f"[{len(results) + 1}/{_CALLS}] {capability} …")
    results.append(await app.call(capability, params))
    return results[-1].data


async def _call_large(app: Session, results: list[Result], params: Mapping[str, object]) -> None:
    """Generate a large file, and compare its hash with the app's."""
    data = await _call(app, results, "file.generate", {"digest": True, **params})
    if data["sha256"] != results[-1].artifacts["file"].sha256:
        raise BinaryError("the large file differs from what the app made; please report it")


async def _repeat_two_calls(app: Session, megabytes: int, results: list[Result]) -> None:
    """Repeat two calls over another transport: the same table, which must give the same file, and a large file."""
    first = next(result for result in results if result.capability == "data.csv")
    await _call(app, results, "data.csv", _TABLE)
    if results[-1].artifacts["file"].sha256 != first.artifacts["file"].sha256:
        raise BinaryError(f"{app.transport.name} and {first.transport} gave different files; please report it")
    await _call_large(app, results, {"megabytes": megabytes, "seed": 3, "filename": f"large-{app.transport.name}.bin"})


async def _make_all_calls(app: Session, samples: Path, megabytes: int, results: list[Result]) -> None:
    """Call capabilities of each kind, with the README of this package and the app's ``samples`` as input."""
    from importlib.metadata import metadata  # late: it takes 20 ms to load

    readme = str(metadata("abp-transports").json.get("description", ""))
    if not readme:
        readme = (samples / "notes.md").read_text(encoding="utf-8")
    sales = (samples / "sales.csv").read_text(encoding="utf-8")

    async def step(capability: str, params: Mapping[str, object]) -> Any:
        return await _call(app, results, capability, params)

    # Comments are marks for registries, which the app would show.
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
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Results", box=None, pad_edge=False, header_style="bold")
    for name in ("capability", "transport", "type"):
        table.add_column(name, no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("file", overflow="fold")
    for result in results:
        for ref in result.artifacts.values():
            _add_row(table, result, ref)
    console = Console()
    if not console.is_terminal:
        # Wide enough that paths are not wrapped.
        console = Console(width=200)
    console.print(table)


def _add_row(table: Table, result: Result, ref: ArtifactRef) -> None:
    kind = ref.mime_type.removeprefix("application/")
    file = os.path.relpath(ref.path) if ref.path else ref.uri
    if file.startswith(".."):
        file = str(ref.path)
    table.add_row(result.capability, result.transport, kind, f"{ref.size_bytes:,}", f"{result.duration_ms:,.0f}", file)


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
