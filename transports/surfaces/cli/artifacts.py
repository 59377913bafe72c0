"""``abp artifacts``: list, show, copy, open, remove and check stored artifacts."""

from __future__ import annotations

import asyncio
import sys
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.plain_text import plain_text
from .artifact_list import document_of, print_list
from .artifact_lookup import Id, find
from .artifact_query import QueryOptions
from .artifact_store import store_at
from .artifact_upkeep import fsck, gc, reindex
from .option_groups import spread_groups
from .options import Json, Output
from .output import asynchronous, print_error, print_json, print_note, print_text

if TYPE_CHECKING:
    from ...artifacts import ArtifactRef, ArtifactStore

app = typer.Typer(help="Look at, fetch and remove stored artifacts.", rich_markup_mode=None)


@app.command("list")
@spread_groups
@asynchronous
async def list_(
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Only the N that were stored last.")
    ] = None,
    *,
    wanted: QueryOptions,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """List artifacts, oldest first.

    Each with its id, bytes, type, the time when it was stored first, and its name. An object store with an index looks
    there."""
    from ...artifacts import find as find_page

    query = wanted.query(limit)
    async with store_at(output) as store:
        page = await find_page(store, query)
        such = "" if wanted == QueryOptions() else "such "
        print_list(page.artifacts[::-1], as_json, f"there are no {such}artifacts in {store.url}")
        if page.next:
            print_note(f"the {len(page.artifacts)} that were stored last; there are older ones")


@app.command("versions")
@asynchronous
async def versions_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="File name, such as report.pdf.")],
    output: Output = None,
    as_json: Json = False,
) -> None:
    """List the artifacts of one file name, the latest last."""
    from ...artifacts import versions

    async with store_at(output) as store:
        print_list(await versions(store, name), as_json, f"nothing was stored as {name} in {store.url}")


@app.command("search")
@asynchronous
async def search_(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words that the text has, all of them.")],
    output: Output = None,
    as_json: Json = False,
) -> None:
    """List the texts that contain all of these words, oldest first. ABP_SEARCH_INDEX=true makes an index for that."""
    from ...artifacts import search

    async with store_at(output) as store:
        print_list(await search(store, " ".join(words)), as_json, f"no text in {store.url} has these words")


@app.command()
@asynchronous
async def show(artifact_id: Id, output: Output = None, as_json: Json = False) -> None:
    """Show what is known of one artifact."""
    async with store_at(output) as store:
        ref = await find(store, artifact_id)
    if as_json:
        print_json({"success": True, "artifact": document_of(ref)})
    else:
        for key, value in {**ref.as_dict(), **ref.source}.items():
            print_text(f"{key:<20} {value}")


@app.command()
@asynchronous
async def get(
    artifact_id: Id,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="File or folder to write to; `-` or nothing writes to stdout."),
    ] = None,
    output: Output = None,
) -> int:
    """Copy the bytes of one artifact, checked against their hash."""
    from ...errors import UsageError

    async with store_at(output) as store:
        ref = await find(store, artifact_id)
        if destination is not None and str(destination) != "-":
            path = destination / ref.filename if destination.is_dir() else destination
            print_note(f"wrote {await _save(store, ref, path)}")
            return 0
        text = ref.mime_type.startswith("text/") or ref.mime_type in ("application/json", "image/svg+xml")
        if destination is None and not text and sys.stdout.isatty():
            raise UsageError(
                f"{ref.mime_type} would be written to the terminal; name a file, or `-` if you mean it: "
                f"abp artifacts get {artifact_id} {ref.filename}"
            )
        if destination is None and sys.stdout.isatty():
            await _show(store.open(ref.id))
            return 0
        async for chunk in store.open(ref.id):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return 0


async def _show(chunks: AsyncIterator[bytes]) -> None:
    """Print a text of an app on a terminal, which must obey nothing in it."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    async for chunk in chunks:
        sys.stdout.write(plain_text(decode(chunk)))
    sys.stdout.flush()


async def _save(store: ArtifactStore, ref: ArtifactRef, path: Path) -> Path:
    """Write the file as a whole or not at all. A device or a pipe is written to, never replaced."""
    from ...errors import StoreError

    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            async for chunk in store.open(ref.id):
                device.write(chunk)
        return path
    if not path.resolve().parent.is_dir():
        raise StoreError(f"there is no folder {path.resolve().parent}; make it first, or name another file")
    return await store.export(ref, path)


@app.command("open")
@asynchronous
async def open_(artifact_id: Id, output: Output = None) -> None:
    """Open an artifact, as a double click does."""
    from ...errors import ABPError, UsageError

    async with store_at(output) as store:
        ref = await find(store, artifact_id)
    if ref.path is None:
        raise UsageError(
            f"{ref.id} is no file of this machine; copy it first: abp artifacts get {ref.id} {ref.filename}"
        )
    if not await _launch(ref.path):
        raise ABPError(f"nothing here opens {ref.mime_type}; the file is {ref.path}")
    print_note(f"opened {ref.path}")


async def _launch(path: Path) -> bool:
    """Open a file as the desktop does; return whether that went well."""
    command = "open" if sys.platform == "darwin" else "xdg-open"
    null = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(command, str(path), stdin=null, stdout=null, stderr=null)
    except FileNotFoundError:
        return False
    return await process.wait() == 0


@app.command()
@asynchronous
async def rm(
    artifact_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids to remove; none if one does not exist.")
    ],
    output: Output = None,
) -> int:
    """Remove artifacts and their files."""
    from ...errors import ArtifactNotFound

    async with store_at(output) as store:
        found: dict[str, ArtifactRef] = {}
        missing: list[ArtifactNotFound] = []
        for name in artifact_ids:
            try:
                ref = await find(store, name)
            except ArtifactNotFound as error:
                missing.append(error)
            else:
                found[ref.id] = ref
        for one in missing:
            print_error(one.code, f"{one.message}; nothing was removed", as_json=False)
        if missing:
            return 1
        for ref in found.values():
            await store.delete(ref.id)
            print_note(f"removed {ref.id} ({ref.filename})")
        return 0


for command in (gc, fsck, reindex):
    app.command()(command)
