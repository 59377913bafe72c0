"""``abp artifacts``: what lies in the store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .outcome import out, perform, print_json

if TYPE_CHECKING:
    from ...artifacts import ArtifactRef, ArtifactStore

app = typer.Typer(help="Look at, fetch and remove stored artifacts.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(help="Id of the artifact, as `abp artifacts list` shows it.")]
Folder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder of the store (default: ABP_OUTPUT_DIR).")
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]


def _store(folder: Path | None) -> ArtifactStore:
    from ...artifacts import open_store
    from ...settings import Settings

    settings = Settings.load()
    return open_store(folder or settings.store or settings.output_dir, max_bytes=settings.max_artifact_bytes)


def _document(ref: ArtifactRef) -> dict[str, object]:
    return {**ref.as_dict(), "source": dict(ref.source)}


@app.command("list")
def list_(folder: Folder = None, as_json: Json = False) -> int:
    """List all artifacts, oldest first."""

    async def work() -> int:
        refs = await _store(folder).list()
        if as_json:
            print_json({"success": True, "artifacts": [_document(ref) for ref in refs]})
            return 0
        for ref in refs:
            out(f"{ref.id:<40} {ref.size_bytes:>12,}  {ref.mime_type:<24} {ref.filename}")
        if not refs:
            sys.stderr.write("abp: the store is empty\n")
        return 0

    return perform(work, as_json=as_json)


@app.command()
def show(artifact_id: Id, folder: Folder = None, as_json: Json = False) -> int:
    """Show what is known of one artifact."""

    async def work() -> int:
        ref = await _store(folder).stat(artifact_id)
        if as_json:
            print_json({"success": True, "artifact": _document(ref)})
        else:
            for key, value in {**ref.as_dict(), **ref.source}.items():
                out(f"{key:<20} {value}")
        return 0

    return perform(work, as_json=as_json)


@app.command()
def get(
    artifact_id: Id,
    destination: Annotated[Path | None, typer.Argument(help="File to write; `-` or nothing writes to stdout.")] = None,
    folder: Folder = None,
) -> int:
    """Copy the bytes of one artifact, checked against their hash."""

    async def work() -> int:
        chunks = _store(folder).open(artifact_id)
        if destination is None or str(destination) == "-":
            async for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return 0
        partial = destination.with_name(f".{destination.name}.part")
        try:
            with partial.open("wb") as file:
                async for chunk in chunks:
                    file.write(chunk)
            partial.replace(destination)
        finally:
            partial.unlink(missing_ok=True)
        sys.stderr.write(f"abp: wrote {destination}\n")
        return 0

    return perform(work)


@app.command()
def rm(artifact_ids: Annotated[list[str], typer.Argument(help="Ids to remove.")], folder: Folder = None) -> int:
    """Remove artifacts and their files."""

    async def work() -> int:
        store = _store(folder)
        missing = [name for name in artifact_ids if not await store.delete(name)]
        for name in missing:
            sys.stderr.write(
                f"abp: no artifact {name}; `abp artifacts list` shows what there is [ARTIFACT_NOT_FOUND]\n"
            )
        return 1 if missing else 0

    return perform(work)
