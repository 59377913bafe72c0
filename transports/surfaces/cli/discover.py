"""``abp discover``: read an app's manifest, without a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from .calls import print_capabilities
from .options import Json
from .output import asynchronous, print_json, print_note, print_text

_PRINTED = {"name", "description", "input_schema", "output_schema", "experimental", "deprecated"}


@asynchronous
async def discover(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the app's page, such as http://127.0.0.1:8000/")
    ],
    as_json: Json = False,
) -> int:
    """Read an app's manifest: what it says it can do, without a browser."""
    from ...http import discover
    from ...protocol.urls import redact_url
    from ...session.settings import Settings

    found = await discover(url, allow_private=Settings.load().allow_private_addresses)
    if found.reason is not None:
        raise found.reason
    assert found.manifest is not None
    for warning in found.warnings:
        print_note(warning)
    if as_json:
        listed = [capability.model_dump(by_alias=True, include=_PRINTED) for capability in found.manifest.capabilities]
        print_json(
            {
                "success": True,
                "app": found.manifest.app.model_dump(),
                "abp": found.manifest.abp,
                "title": found.title,
                "page_url": found.page_url,
                "manifest_url": found.manifest_url,
                "capabilities": listed,
                "warnings": list(found.warnings),
            }
        )
        return 0
    print_capabilities(found.manifest.app, found.manifest.capabilities)
    print_text(f"ABP {found.manifest.abp or 'of an unknown version'}, from {redact_url(found.manifest_url or '')}")
    return 0
