"""The artifact that a user names on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...artifacts import ArtifactRef, ArtifactStore

__all__ = ["Id", "find"]

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the artifact (see `abp artifacts list`), its beginning, or the name of its file."
    ),
]

#: Ids that a message about an ambiguous name lists.
_MAX_IDS = 5


async def find(store: ArtifactStore, name: str) -> ArtifactRef:
    """Return the artifact that a user means: by its id, by the beginning of one, or by a name of its file.

    Raises :class:`~transports.errors.ArtifactNotFound`, and :class:`~transports.errors.UsageError` for a name or a
    beginning of several."""
    from ...artifacts import is_named
    from ...errors import ArtifactNotFound, UsageError

    try:
        return await store.stat(name)
    except ArtifactNotFound as error:
        refs = await store.list() if name else []
        found = [ref for ref in refs if ref.id.startswith(name)] or [ref for ref in refs if is_named(ref, name)]
        if not found:
            message = f"there is no artifact {name!r} in {store.url}; `abp artifacts list` shows what there is"
            raise ArtifactNotFound(message, details=error.details) from None
    if len(found) > 1:
        ids = ", ".join(ref.id for ref in found[:_MAX_IDS]) + (", …" if len(found) > _MAX_IDS else "")
        raise UsageError(f"{name!r} may be any of {len(found)} artifacts: {ids}; give more of the id")
    return found[0]
