"""``abp artifacts``: list, show, copy, open, remove and check stored artifacts."""

from __future__ import annotations

import asyncio
import math
import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...artifacts._opening import reindex as reindex_store
from ...artifacts._ref import Query
from ...artifacts._retention import Retention
from ...artifacts._search import find as find_page, is_named, search, versions
from ...errors import ABPError, ArtifactNotFound, Corrupt, StoreError, UsageError
from ...protocol._times import parse_duration
from ...session._settings import Settings, retention_settings
from ...session._stores import open_configured_store
from ._options import Json, Output, seconds_between, spread_groups
from ._output import (
    LIMITS,
    error_document,
    print_bytes,
    print_error,
    print_json,
    print_note,
    print_rows,
    print_text,
    stdout_is_terminal,
)
from ._running import asynchronous

if TYPE_CHECKING:
    from ...artifacts._base import ArtifactStore
    from ...artifacts._ref import ArtifactRef


def document_of(ref: ArtifactRef) -> dict[str, object]:
    return {**ref.as_dict(), "source": dict(ref.source)}


def print_list(refs: Sequence[ArtifactRef], as_json: bool, empty_note: str) -> None:
    if as_json:
        print_json({"success": True, "artifacts": [document_of(ref) for ref in refs]})
        return
    rows = [(ref.id, f"{ref.size_bytes:,}", ref.mime_type, _stored_at(ref), ref.filename) for ref in refs]
    print_rows(rows, numbers=(1,))
    if not refs:
        print_note(empty_note)


def _stored_at(ref: ArtifactRef) -> str:
    """Return the time when the artifact was first stored: local, to the minute, or empty if unknown."""
    created = str(ref.source.get("created"))
    try:
        local_time = datetime.fromisoformat(created).astimezone()
    except (ValueError, OverflowError, OSError):
        # The store of a host program may not record this time.
        return ""
    return f"{local_time:%Y-%m-%d %H:%M}"


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the artifact (see `abp artifacts list`), its beginning, or the name of its file."
    ),
]


async def find_artifact(store: ArtifactStore, name: str) -> ArtifactRef:
    """Return the only artifact whose id, beginning of the id, or file name is ``name``."""
    try:
        return await store.stat(name)
    except ArtifactNotFound as error:
        matches = await _find_similar(store, name)
        if not matches:
            raise ArtifactNotFound(
                f"no artifact {name!r} in {store.url}; `abp artifacts list` lists what is stored; if the call had "
                "--out DIR, give --store DIR here, too",
                details=error.details,
            ) from None

    if len(matches) > 1:
        ids = [ref.id for ref in matches[: LIMITS.ids]]
        if len(matches) > LIMITS.ids:
            ids.append("…")
        raise UsageError(f"{name!r} matches {len(matches)} artifacts: {', '.join(ids)}; give more of the id")
    (ref,) = matches
    return ref


async def _find_similar(store: ArtifactStore, name: str) -> list[ArtifactRef]:
    """Return the artifacts whose id begins with ``name``, or if none does, those with this file name."""
    if not name:
        return []
    refs = await store.list()
    matches = [ref for ref in refs if ref.id.startswith(name)]
    if not matches:
        matches = [ref for ref in refs if is_named(ref, name)]
    return matches


_TIME_FORMS = "a date, a time (2026-01-31T12:00Z), or an age: 30m, 1h, 7d"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    capability: Annotated[
        str | None, typer.Option("--capability", metavar="NAME", help="Only artifacts of this capability.")
    ] = None
    app: Annotated[str | None, typer.Option("--app", metavar="ID", help="Only artifacts of this app.")] = None
    mime_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only this MIME type, or all of a kind: image/*.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help=f"Only artifacts first stored since then: {_TIME_FORMS}."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only artifacts first stored before then.")
    ] = None
    min_bytes: Annotated[
        int | None, typer.Option("--min-bytes", metavar="N", min=0, help="Only artifacts of at least N bytes.")
    ] = None
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", metavar="N", min=0, help="Only artifacts of at most N bytes.")
    ] = None

    def query(self, limit: int | None) -> Query:
        return Query(
            capability=self.capability,
            app=self.app,
            mime_type=self.mime_type,
            since=_parse_time(self.since, "--since"),
            until=_parse_time(self.until, "--until"),
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            limit=limit,
        )


def _parse_time(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None

    has_unit = text.endswith(("s", "m", "h", "d"))
    age = parse_duration(text) if has_unit else None
    if age is not None:
        return datetime.now(UTC) - timedelta(seconds=age)

    try:
        # A time without a zone is local.
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} must be {_TIME_FORMS}, not {text!r}") from None


def store_at(url: str | None, retention: Retention | None = None) -> ArtifactStore:
    return open_configured_store(Settings.load(), url, retention=retention or retention_settings())


app = typer.Typer(help="Look at, fetch and remove stored artifacts.", add_completion=False, rich_markup_mode=None)


@app.command("list")
@spread_groups
@asynchronous
async def list_(
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Only the last N stored.")
    ] = None,
    *,
    filters: QueryOptions,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """List artifacts, oldest first.

    Prints id, bytes, type, time of first storage, and name of each. An object store with an index is read from the
    index."""
    query = filters.query(limit)
    async with store_at(output) as store:
        page = await find_page(store, query)
        artifacts = "artifacts" if filters == QueryOptions() else "such artifacts"
        print_list(page.artifacts[::-1], as_json, f"no {artifacts} in {store.url}")
        if page.next:
            print_note(f"Showing the {len(page.artifacts)} most recent; `--limit` shows more")


@app.command("versions")
@asynchronous
async def versions_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="File name, such as report.pdf.")],
    output: Output = None,
    as_json: Json = False,
) -> None:
    """List the artifacts of one file name, latest last."""
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
    async with store_at(output) as store:
        print_list(await search(store, " ".join(words)), as_json, f"no text in {store.url} has these words")


@app.command()
@asynchronous
async def show(artifact_id: Id, output: Output = None, as_json: Json = False) -> None:
    """Show the metadata of one artifact."""
    async with store_at(output) as store:
        ref = await find_artifact(store, artifact_id)
    if as_json:
        print_json({"success": True, "artifact": document_of(ref)})
    else:
        # The file may be damaged since: `abp artifacts fsck` reads it again.
        labels = {"verified": "verified when stored"}
        fields = {**ref.as_dict(), **ref.source}
        print_rows([(labels.get(key, key), str(value)) for key, value in fields.items()])


@app.command()
@asynchronous
async def get(
    artifact_id: Id,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="File or folder to write to; `-` or nothing writes to stdout."),
    ] = None,
    output: Output = None,
) -> None:
    """Copy the bytes of one artifact, checked against their hash."""
    async with store_at(output) as store:
        ref = await find_artifact(store, artifact_id)
        if destination is not None and str(destination) != "-":
            path = destination
            if destination.is_dir():
                path = destination / ref.filename
            print_note(f"wrote {await _save_content(store, ref, path)}")
        elif destination is None and stdout_is_terminal():
            await _print_content(store, ref, artifact_id)
        else:
            # With `-` the bytes go to a terminal as they are.
            async for chunk in store.open(ref.id):
                print_bytes(chunk)


async def _print_content(store: ArtifactStore, ref: ArtifactRef, artifact_id: str) -> None:
    """Print a text to the terminal without control sequences, which the terminal would obey. Refuse other content.
    ``artifact_id`` is the artifact's name on the command line."""
    is_text = ref.mime_type.startswith("text/") or ref.mime_type in ("application/json", "image/svg+xml")
    if not is_text:
        raise UsageError(
            f"{ref.mime_type} would be written to the terminal; name a file, or `-` if you mean it: "
            f"abp artifacts get {artifact_id} {ref.filename}"
        )
    decode = getincrementaldecoder("utf-8")("replace").decode
    async for chunk in store.open(ref.id):
        print_text(decode(chunk), end="")


async def _save_content(store: ArtifactStore, ref: ArtifactRef, path: Path) -> Path:
    """Write an artifact to a file, completely or not at all. A device or a pipe is written to, but never replaced."""
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            async for chunk in store.open(ref.id):
                device.write(chunk)
        return path
    if not path.resolve().parent.is_dir():
        raise StoreError(f"the folder {path.resolve().parent} does not exist; make it first, or name another file")
    return await store.export(ref, path)


@app.command("open")
@asynchronous
async def open_(artifact_id: Id, output: Output = None) -> None:
    """Open an artifact, as a double click does."""
    async with store_at(output) as store:
        ref = await find_artifact(store, artifact_id)
    if ref.path is None:
        raise UsageError(
            f"{ref.id} is not a file on this machine; copy it first: abp artifacts get {ref.id} {ref.filename}"
        )
    if not await _open_with_desktop(ref.path):
        raise ABPError(f"no program is registered for {ref.mime_type}; open {ref.path} yourself")
    print_note(f"opened {ref.path}")


async def _open_with_desktop(path: Path) -> bool:
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
        list[str], typer.Argument(metavar="ID...", help="Ids; nothing is removed if one does not exist.")
    ],
    output: Output = None,
) -> int:
    """Remove artifacts and their files."""
    async with store_at(output) as store:
        refs, missing = await _find_all(store, artifact_ids)
        for problem in missing:
            problem.message += "; nothing was removed"
            print_error(problem)
        if missing:
            return 1

        for ref in refs:
            await store.delete(ref.id)
            print_note(f"removed {ref.id} ({ref.filename})")
        return 0


async def _find_all(
    store: ArtifactStore, artifact_ids: Sequence[str]
) -> tuple[list[ArtifactRef], list[ArtifactNotFound]]:
    """Return the artifacts with these names, each once, and the errors for names that match none."""
    refs: dict[str, ArtifactRef] = {}
    missing: list[ArtifactNotFound] = []
    for name in artifact_ids:
        try:
            ref = await find_artifact(store, name)
        except ArtifactNotFound as error:
            missing.append(error)
        else:
            refs[ref.id] = ref
    return list(refs.values()), missing


@app.command()
@asynchronous
async def gc(
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl",
            metavar="TIME",
            parser=seconds_between(0, math.inf),
            help="Also remove artifacts that were stored longer ago than this: seconds, or 90s, 30m, 1h, 7d.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files; remove nothing.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Remove unreachable files from the store.

    These are leftovers of writers that died and content without metadata (both after an hour), and damaged content
    (after a day)."""
    retention = None
    if ttl is not None:
        retention = Retention.only(ttl_seconds=ttl)
    async with store_at(output, retention) as store:
        removals = await store.gc(dry_run=dry_run)
    size = sum(stray.size_bytes for stray in removals)

    if as_json:
        documents = [stray._asdict() for stray in removals]
        print_json({"success": True, "dry_run": dry_run, "removed": documents, "size_bytes": size})
        return
    print_rows([(stray.kind, stray.id, f"{stray.size_bytes:,}", stray.reason) for stray in removals], numbers=(2,))
    verb = "would remove" if dry_run else "removed"
    files = "file" if len(removals) == 1 else "files"
    print_note(f"{verb} {len(removals):,} {files}, {size:,} bytes")


@app.command()
@asynchronous
async def fsck(
    repair: Annotated[bool, typer.Option("--repair", help="Put metadata that cannot be read into quarantine.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> int:
    """Read every artifact and report damaged ones. Exit status 1 if there are any."""
    async with store_at(output) as store:
        report = await store.fsck(repair=repair)
        summary = f"{report.artifacts} artifacts of {report.size_bytes:,} bytes read in {store.url}"
    if not report.problems:
        if as_json:
            print_json({"success": True, **report.as_dict()})
        else:
            print_note(f"{summary}: no damage")
        return 0

    error = Corrupt(f"{summary}: {len(report.problems)} problems; store the damaged artifacts again, or remove them")
    if as_json:
        print_json({**error_document(error), **report.as_dict()})
    else:
        print_rows([(problem.kind, problem.id, problem.message) for problem in report.problems])
    print_error(error)
    return 1


@app.command()
@asynchronous
async def reindex(output: Output = None, as_json: Json = False) -> None:
    """Build or correct the index of an object store."""
    async with store_at(output) as store:
        report = await reindex_store(store)
        if as_json:
            print_json({"success": True, **report.as_dict()})
        else:
            print_note(f"{report.artifacts} artifacts in {store.url}; {len(report.corrected)} rows were corrected")


@app.command()
@asynchronous
async def link(
    artifact_id: Id,
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="How long it opens: 90s, 30m, 1h, 7d; at most 30d.")
    ] = "1h",
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="BASE", help="Address of the server (default: the server on this machine)."),
    ] = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Print an address that opens one artifact for a limited time."""
    from ..web._artifacts import make_link

    async with store_at(output) as store:
        ref = await find_artifact(store, artifact_id)
        address, expires_at = await make_link(store, ref.id, expires, url)
    if as_json:
        print_json({"success": True, "url": address, "expires_at": expires_at})
    else:
        print_text(address)
