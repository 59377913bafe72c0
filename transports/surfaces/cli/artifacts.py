"""``abp artifacts``: list, show, copy, open, remove and check stored artifacts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .artifact_list import document_of, print_list
from .artifact_lookup import Id, find
from .output import print_error, print_json, print_note, print_text, run_async

if TYPE_CHECKING:
    from ...artifacts import ArtifactRef, ArtifactStore, Retention

app = typer.Typer(help="Look at, fetch and remove stored artifacts.", rich_markup_mode=None)

Folder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder of the store (default: ABP_OUTPUT_DIR).")
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]


def store_at(folder: Path | None, retention: Retention | None = None) -> ArtifactStore:
    """Return the store in ``folder``, by default that of the settings, as is the retention."""
    from ...session.retention import retention_settings
    from ...session.settings import Settings
    from ...session.stores import open_configured_store

    return open_configured_store(Settings.load(), folder, retention=retention or retention_settings())


@app.command("list")
def list_(
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only the N that were stored last.")
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> int:
    """List artifacts, oldest first.

    Each with its id, bytes, type, the time when it was stored first, and its name."""

    async def work() -> int:
        async with store_at(folder) as store:
            refs = await store.list()
            shown = refs if limit is None else refs[-limit:]
            print_list(shown, as_json, f"there are no artifacts in {store.url}")
            if len(shown) < len(refs):
                print_note(f"{len(shown)} of {len(refs)} artifacts; the others are older")
        return 0

    return run_async(work)


@app.command("versions")
def versions_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="File name, such as report.pdf.")],
    folder: Folder = None,
    as_json: Json = False,
) -> int:
    """List the artifacts of one file name, the latest last."""

    async def work() -> int:
        from ...artifacts import versions

        async with store_at(folder) as store:
            print_list(await versions(store, name), as_json, f"nothing was stored as {name} in {store.url}")
        return 0

    return run_async(work)


@app.command("search")
def search_(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words that the text has, all of them.")],
    folder: Folder = None,
    as_json: Json = False,
) -> int:
    """List the texts that contain all of these words, oldest first. ABP_SEARCH_INDEX=true makes an index for that."""

    async def work() -> int:
        from ...artifacts import search

        async with store_at(folder) as store:
            print_list(await search(store, " ".join(words)), as_json, f"no text in {store.url} has these words")
        return 0

    return run_async(work)


@app.command()
def show(artifact_id: Id, folder: Folder = None, as_json: Json = False) -> int:
    """Show what is known of one artifact."""

    async def work() -> int:
        async with store_at(folder) as store:
            ref = await find(store, artifact_id)
        if as_json:
            print_json({"success": True, "artifact": document_of(ref)})
        else:
            for key, value in {**ref.as_dict(), **ref.source}.items():
                print_text(f"{key:<20} {value}")
        return 0

    return run_async(work)


@app.command()
def get(
    artifact_id: Id,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="File or folder to write to; `-` or nothing writes to stdout."),
    ] = None,
    folder: Folder = None,
) -> int:
    """Copy the bytes of one artifact, checked against their hash."""

    async def work() -> int:
        from ...errors import UsageError

        async with store_at(folder) as store:
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
            async for chunk in store.open(ref.id):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return 0

    return run_async(work)


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
def open_(artifact_id: Id, folder: Folder = None) -> int:
    """Open an artifact, as a double click does."""

    async def work() -> int:
        from ...errors import ABPError, UsageError

        async with store_at(folder) as store:
            ref = await find(store, artifact_id)
        if ref.path is None:
            raise UsageError(
                f"{ref.id} is no file of this machine; copy it first: abp artifacts get {ref.id} {ref.filename}"
            )
        if not await _launch(ref.path):
            raise ABPError(f"nothing here opens {ref.mime_type}; the file is {ref.path}")
        print_note(f"opened {ref.path}")
        return 0

    return run_async(work)


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
def rm(
    artifact_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids to remove; none if one does not exist.")
    ],
    folder: Folder = None,
) -> int:
    """Remove artifacts and their files."""

    async def work() -> int:
        from ...errors import ArtifactNotFound

        async with store_at(folder) as store:
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

    return run_async(work)


@app.command()
def gc(
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", metavar="SECONDS", help="Also remove artifacts that were stored longer ago than this."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    folder: Folder = None,
    as_json: Json = False,
) -> int:
    """Remove what nobody can reach.

    That is leftovers of writers that died and content without metadata (both after an hour), and damaged content
    (after a day)."""

    async def work() -> int:
        async with store_at(folder, _retention_by_age(ttl)) as store:
            removed = await store.gc(dry_run=dry_run)
        size = sum(one.size_bytes for one in removed)
        if as_json:
            print_json(
                {
                    "success": True,
                    "dry_run": dry_run,
                    "removed": [one._asdict() for one in removed],
                    "size_bytes": size,
                }
            )
            return 0
        for one in removed:
            print_text(f"{one.kind:<10} {one.id:<40} {one.size_bytes:>12,}  {one.reason}")
        print_note(f"{'would remove' if dry_run else 'removed'} {len(removed)} of {size:,} bytes")
        return 0

    return run_async(work)


def _retention_by_age(ttl: float | None) -> Retention | None:
    from ...artifacts import Retention

    if ttl is None:
        return None
    return Retention.only(ttl_seconds=ttl)


@app.command()
def fsck(folder: Folder = None, as_json: Json = False) -> int:
    """Read every artifact and say what is damaged. Exit status 1 if anything is."""

    async def work() -> int:
        async with store_at(folder) as store:
            report = await store.fsck()
            summary = f"{report.artifacts} artifacts of {report.size_bytes:,} bytes read in {store.url}"
            if not report.problems:
                if as_json:
                    print_json({"success": True, **report.as_dict()})
                else:
                    print_note(f"{summary}: all whole")
                return 0
            message = f"{summary}: {len(report.problems)} problems; store the damaged artifacts again, or remove them"
            if as_json:
                error = {"code": "CORRUPT", "message": message, "retryable": False}
                print_json({"success": False, "error": error, "cancelled": False, **report.as_dict()})
            else:
                for problem in report.problems:
                    print_text(f"{problem.kind:<10} {problem.id:<40} {problem.message}")
            print_note(f"{message} [CORRUPT]", always=True)
            return 1

    return run_async(work)
