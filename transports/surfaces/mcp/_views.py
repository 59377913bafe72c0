"""Views of the tools of connected MCP servers: opened for a client, with a picture, and described for a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, UsageError
from ...protocol._plain_text import plain_line, plain_text, plain_tree
from ...protocol.messages import Message
from ...routing._result import Result
from ..shared._apps import App, Apps

if TYPE_CHECKING:
    from ...session._views import View

#: Default width and height of a view in CSS pixels.
VIEW_SIZE = (900, 700)
#: Seconds that a view has to come to rest before its picture is taken, and the pause between two looks.
_REST, _PAUSE = 3.0, 0.15
#: Seconds for one look at a view.
_LOOK = 10.0
#: Most names of a view's tools, and lines of warnings, in a text.
_MAX_NAMED, _MAX_LINES = 40, 5
#: Most requests, warnings, reports and files in a description, the newest, and characters of a line.
_MAX_LISTED, _MAX_LINE = 20, 300


async def open_view(
    apps: Apps,
    opener: App,
    capability: str,
    params: Mapping[str, object],
    options: Mapping[str, Any],
    *,
    picture: bool,
) -> tuple[Result, App | None]:
    """Call a capability of ``opener`` and open its view, with these options of
    :meth:`~transports.Session.open_view`. Return the result with the files of the view, and with ``picture`` its
    picture, and the view.

    If the capability was called and its view cannot be shown, the result has a warning, and there is no view. Raises
    the errors of the call, and :class:`~transports.errors.UsageError` for a capability without a view and at the limit
    of apps."""
    view = opener.session.open_view(capability, params, **options)
    declared = opener.session.capabilities[capability].view
    try:
        app = await apps.open_view(opener, view, declared or capability)
    except ABPError as error:
        result = _result(view)
        if result is None:
            raise
        reason = f"the view is not shown: {error.message}"
        return replace(result, warnings=(*result.warnings, reason)), None
    result = view.result
    files = {f"view.files.{number}": ref for number, ref in enumerate(view.files)}
    warnings = list(result.warnings)
    if picture:
        try:
            files["view.picture"] = await _picture(view)
        except ABPError as error:
            warnings.append(f"there is no picture of the view: {error.message}")
    return replace(result, artifacts={**result.artifacts, **files}, warnings=tuple(warnings)), app


def _result(view: View) -> Result | None:
    try:
        return view.result
    except UsageError:
        return None


async def _picture(view: View) -> ArtifactRef:
    """Return a picture of a view that rests: two looks at it are the same, or it moves on and on."""
    look = Message("page/screenshot", {"type": "png"})
    last, until = None, time.monotonic() + _REST
    while time.monotonic() < until:
        picture = (await view.transport.request(look, timeout=_LOOK)).payload
        if picture == last:
            break
        last = picture
        await asyncio.sleep(_PAUSE)
    return (await view.screenshot(timeout=_LOOK)).artifact()


def opened_view(app: App) -> tuple[str, Mapping[str, object]]:
    """Return a view that was opened just now as text and as JSON."""
    assert app.view is not None
    view = app.view
    names = [plain_line(name) for name in islice(view.capabilities, _MAX_NAMED)]
    more = len(view.capabilities) - len(names)
    lines = [
        f"View opened: {plain_line(view.info.name, _MAX_LINE)} (session {app.key}).",
        f"Its tools: {', '.join(names) or 'none'}{f' and {more} more' if more else ''}",
    ]
    troubles = [*view.warnings, *(f"not allowed by the view's policy: {one}" for one in view.violations)]
    lines += [f"Warning: {plain_line(one, _MAX_LINE)}" for one in troubles[:_MAX_LINES]]
    if len(troubles) > _MAX_LINES:
        lines.append(f"{len(troubles) - _MAX_LINES} more warnings: abp_status with this session")
    return "\n".join(lines), {"session": app.key, "tools": names, **view_document(app)}


def view_document(app: App) -> dict[str, object]:
    """Return a view as JSON: its address, the session of its app, the newest 20 of its requests to its host (each the
    kind and, if it was refused, that), what it gave the model last, warnings, reports of its policy, and files."""
    assert app.view is not None and app.opened_by is not None
    view, requests = app.view, list(app.view.requests)[-_MAX_LISTED:]
    said = [one.params for one in requests if one.kind == "message"]
    return {
        "uri": app.shown_target,
        "opened_by": app.opened_by.key,
        "requests": [
            {"kind": one.kind, **({"refused": True} if one.answer.get("isError") else {}), **_address(one.params)}
            for one in requests
            if one.kind != "size"
        ],
        "messages": plain_tree(said),
        "model_context": plain_tree(view.model_context),
        "warnings": [plain_text(one)[:_MAX_LINE] for one in view.warnings[-_MAX_LISTED:]],
        "violations": [plain_text(one)[:_MAX_LINE] for one in view.violations[-_MAX_LISTED:]],
        "files": [ref.uri for ref in view.files[-_MAX_LISTED:]],
    }


def _address(params: Mapping[str, object]) -> dict[str, object]:
    url = params.get("url")
    return {"url": plain_line(url, _MAX_LINE)} if isinstance(url, str) else {}
