"""Retention options of ``abp serve`` and ``abp mcp``: limits for artifacts, and the folder of detached calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._output import print_note

if TYPE_CHECKING:
    from ...artifacts import ArtifactStore, Retention

Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="TIME", help="Remove artifacts so long after they were stored: 90s, 30m, 1h, 7d."),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--retention",
        metavar="KEY=VALUE",
        help="Another limit, such as max_session_bytes=500MB (repeatable); enabled=false keeps everything.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Keep detached calls and the names of connections in this folder, over a restart (default: in memory).",
    ),
]


def open_limited_store(
    url: str | None,
    ttl: str | None,
    limits: Sequence[str] | None,
    *,
    config: Path | None,
    own: Retention | None = None,
) -> ArtifactStore:
    """Return the store at ``url`` (default: the settings) with the retention of the options, variables and settings
    file.

    ``own`` is the default retention if neither the options nor the settings name a store. The effective retention is
    printed on stderr.
    """
    from ...session import Settings, open_configured_store, read_config, retention_settings, uses_own_store

    settings = Settings.load()
    retention = retention_settings(
        options=_options(ttl, limits),
        file=read_config(config),
        default=own if url is None and uses_own_store(settings) else None,
    )
    store = open_configured_store(settings, url, retention=retention)
    if store.retention:
        print_note(f"each artifact in {store.url} is {store.retention} (--ttl, --retention, ABP_RETENTION_…)")
    return store


def _options(ttl: str | None, limits: Sequence[str] | None) -> Mapping[str, object]:
    from ...errors import UsageError

    given: dict[str, object] = {}
    for limit in limits or ():
        key, equals, value = limit.partition("=")
        if not equals:
            raise UsageError(f"--retention {limit}: give KEY=VALUE, such as max_session_bytes=500MB")
        given[key.strip()] = value.strip()
    return given if ttl is None else {**given, "ttl_seconds": ttl}
