"""MCP resources: artifacts, and resources of connected MCP servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ListResourcesResult, ReadResourceResult

from ...artifacts._base import ArtifactStore
from ...errors import ABPError, ArtifactNotFound, Corrupt, TooLarge, UsageError
from ...routing._result import Result
from ..shared._apps import App
from ._artifacts import ArtifactView, Fields, artifact_contents, list_artifacts, over_limit, read_artifact

#: Most characters of a URI in an error.
_MAX_URI = 300


async def list_resources(store: ArtifactStore, cursor: str | None, view: ArtifactView) -> ListResourcesResult:
    """Return one page of artifacts, newest first. Raises :class:`MCPError` for an invalid cursor."""
    try:
        return ListResourcesResult.model_validate(await list_artifacts(store, cursor, view))
    except UsageError as error:
        raise MCPError(INVALID_PARAMS, error.message) from error


async def read_resource(store: ArtifactStore, uri: str, max_bytes: int, view: ArtifactView) -> ReadResourceResult:
    """Return the content of ``artifact://ID``, or of a range of bytes.

    Raises :class:`MCPError` for an unknown or damaged artifact, and above ``max_bytes``."""
    try:
        return ReadResourceResult.model_validate(await read_artifact(store, uri, max_bytes, view))
    except (ArtifactNotFound, Corrupt, TooLarge, UsageError) as error:
        raise _unreadable(uri, error) from error


def _unreadable(uri: str, error: ABPError) -> MCPError:
    return MCPError(INVALID_PARAMS, error.message, {"uri": uri[:_MAX_URI], "code": error.code})


async def read_app_resource(apps: Iterable[App], uri: str, max_bytes: int, view: ArtifactView) -> ReadResourceResult:
    """Return a resource of a connected MCP server. Of several servers, those that list it are tried in turn, or all if
    none does. The content is stored as an artifact, as by the capability ``resources.read``.

    Raises :class:`MCPError` if no server has the resource, and above ``max_bytes``."""
    about = {"uri": uri[:_MAX_URI]}
    owners = [app for app in apps if app.session.resources.available]
    if len(owners) > 1:
        owners = [app for app in owners if await _lists(app, uri)] or owners
    problem = "no connected server has resources; here only artifact://ID can be read"
    for app in owners:
        try:
            result = await app.session.resources.read(uri)
        except ABPError as error:
            problem, about["code"] = error.message, error.code
            continue
        try:
            contents = await _stored_contents(app, result, max_bytes, view)
        except ABPError as error:
            raise _unreadable(uri, error) from error
        return ReadResourceResult.model_validate({"contents": contents})
    raise MCPError(INVALID_PARAMS, problem, about)


async def _lists(app: App, uri: str) -> bool:
    try:
        return any(resource.uri == uri for resource in await app.session.resources.list())
    except ABPError:
        return False


async def _stored_contents(app: App, result: Result, max_bytes: int, view: ArtifactView) -> list[Fields]:
    """Return the contents of a resource: short text from the result, other content from the store."""
    data: Any = result.data
    contents: list[Fields] = []
    for index, item in enumerate(data["contents"]):
        if not isinstance(item, dict):
            continue
        uri, mime_type = str(item.get("uri", "")), item.get("mimeType")
        places = [place for key in ("blob", "text") if (place := f"contents.{index}.{key}") in result.artifacts]
        if not places:
            contents.append({"uri": uri, "mimeType": mime_type, "text": str(item.get("text", ""))})
            continue
        ref = result.artifacts[places[0]]
        max_bytes -= ref.size_bytes
        if max_bytes < 0:
            raise over_limit(ref, max_bytes + ref.size_bytes)
        content = await app.session.store.get(ref)
        contents.append(artifact_contents(uri, ref, content, {**view.meta(ref), "artifact": ref.id}))
    return contents
