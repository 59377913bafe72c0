"""``abp artifacts gc``, ``fsck`` and ``reindex``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .artifact_store import store_at
from .options import Json, Output
from .output import asynchronous, print_json, print_note, print_text

if TYPE_CHECKING:
    from ...artifacts import Retention

__all__ = ["fsck", "gc", "reindex"]


@asynchronous
async def gc(
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", metavar="SECONDS", help="Also remove artifacts that were stored longer ago than this."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> int:
    """Remove what nobody can reach.

    That is leftovers of writers that died and content without metadata (both after an hour), and damaged content
    (after a day)."""
    async with store_at(output, _retention_by_age(ttl)) as store:
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
    width = max((len(one.id) for one in removed), default=0)
    for one in removed:
        print_text(f"{one.kind:<10} {one.id:<{width}} {one.size_bytes:>12,}  {one.reason}")
    print_note(f"{'would remove' if dry_run else 'removed'} {len(removed)} of {size:,} bytes")
    return 0


def _retention_by_age(ttl: float | None) -> Retention | None:
    from ...artifacts import Retention

    if ttl is None:
        return None
    return Retention.only(ttl_seconds=ttl)


@asynchronous
async def fsck(
    repair: Annotated[bool, typer.Option("--repair", help="Put metadata that cannot be read into quarantine.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> int:
    """Read every artifact and say what is damaged. Exit status 1 if anything is."""
    async with store_at(output) as store:
        report = await store.fsck(repair=repair)
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
            width = max((len(problem.id) for problem in report.problems), default=0)
            for problem in report.problems:
                print_text(f"{problem.kind:<10} {problem.id:<{width}} {problem.message}")
        print_note(f"{message} [CORRUPT]", always=True)
        return 1


@asynchronous
async def reindex(output: Output = None, as_json: Json = False) -> None:
    """Build or correct the index of an object store."""
    from ...artifacts import reindex as reindex_store

    async with store_at(output) as store:
        report = await reindex_store(store)
        if as_json:
            print_json({"success": True, **report.as_dict()})
        else:
            print_note(f"{report.artifacts} artifacts in {store.url}; {len(report.corrected)} rows were corrected")
