"""What the bridge says of a connected app."""

from __future__ import annotations

from itertools import islice

from ...protocol.plain_text import plain_line
from ..shared.apps import App

__all__ = ["app_document", "app_name", "capability_names"]

#: Capabilities of one app in a structured result, and in its text.
_MAX_LISTED, _MAX_NAMED = 300, 40
#: Characters of the name of an app or a capability, and of a description, in these.
_MAX_NAME, _MAX_DESCRIPTION = 200, 200


def app_name(app: App) -> str:
    """Return the app's name as one short line."""
    return plain_line(app.session.info.name, _MAX_NAME)


def capability_names(app: App) -> list[str]:
    """Return the names of the first capabilities."""
    return [plain_line(name, _MAX_NAME) for name in islice(app.session.capabilities, _MAX_NAMED)]


def app_document(app: App) -> dict[str, object]:
    """Return an app as JSON: its session, its name or address, what it can do."""
    session = app.session
    return {
        "session": app.key,
        "connected": True,
        "name" if app.is_named else "url": app.shown_target,
        "app": {key: plain_line(text, _MAX_NAME) for key, text in session.info.model_dump().items()},
        "transport": session.transport.name,
        "warnings": [plain_line(warning) for warning in session.warnings],
        "capabilities": [
            {
                "name": plain_line(one.name),
                "description": plain_line(one.description, _MAX_DESCRIPTION),
                "available": one.available,
            }
            for one in (session.capabilities[name] for name in islice(session.capabilities, _MAX_LISTED))
        ],
    }
