"""One connection to one app: connect, handshake, calls, events, resources.

* :mod:`._connect` — :func:`~._connect.connect`; :mod:`._targets` — the transport for a target, own or of a plug-in.
* :mod:`._settings` — environment variables, the settings file ``abp.toml`` and its trust; :mod:`._retention_fields`.
* :mod:`._apps`, :mod:`._app_tables` — apps of the settings file; :mod:`._secrets` — its secrets, guarded in a session.
* :mod:`._session` — :class:`~._session.Session`, the connected app.
* :mod:`._connection` — the handshake, the manifest, changes of capabilities, reconnection.
* :mod:`._calls` — attempts, retries, cancellation, handles of calls, results in the store.
* :mod:`._dispatch` — delivery of the app's messages to calls, callbacks and streams; :mod:`._events` — typed events.
* :mod:`._evidence`, :mod:`._call_evidence` — the choice of evidence, and its recording around each call.
* :mod:`._resources` — resources of an MCP server; :mod:`._views` — views of its tools, as sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._app_tables import AppEntry as AppEntry
    from ._calls import (
        NOT_RUN as NOT_RUN,
        SESSION_LOST as SESSION_LOST,
        CallHandle as CallHandle,
        CallStatus as CallStatus,
        keeping_server_calls as keeping_server_calls,
        timeout_seconds as timeout_seconds,
    )
    from ._connect import CommonOptions as CommonOptions, ConnectOptions as ConnectOptions, connect as connect
    from ._dispatch import OnElicitation as OnElicitation, OnNotification as OnNotification, OnProgress as OnProgress
    from ._events import (
        CallFinished as CallFinished,
        CallStarted as CallStarted,
        ConnectionChanged as ConnectionChanged,
        Event as Event,
        Retrying as Retrying,
    )
    from ._evidence import (
        Evidence as Evidence,
        GeneralEvidence as GeneralEvidence,
        checked_evidence as checked_evidence,
        keeping as keeping,
        read_evidence as read_evidence,
    )
    from ._named_apps import (
        app_entries as app_entries,
        find_app as find_app,
        is_app_name as is_app_name,
        shares_browser as shares_browser,
    )
    from ._resources import READ_HINT as READ_HINT, Resources as Resources
    from ._session import Session as Session
    from ._settings import (
        Settings as Settings,
        read_config as read_config,
        require_known as require_known,
        retention_settings as retention_settings,
        routing_of as routing_of,
        settings_error as settings_error,
        settings_variables as settings_variables,
        trust_found_file as trust_found_file,
        unknown_variables as unknown_variables,
        unread as unread,
    )
    from ._sign_in import sign_in as sign_in
    from ._stores import open_configured_store as open_configured_store
    from ._targets import (
        is_mcp_server as is_mcp_server,
        reject_options as reject_options,
        transport_for as transport_for,
    )
    from ._views import View as View, ViewOptions as ViewOptions, ViewServer as ViewServer
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_app_tables": ("AppEntry",),
            "_calls": (
                "CallHandle",
                "CallStatus",
                "NOT_RUN",
                "SESSION_LOST",
                "keeping_server_calls",
                "timeout_seconds",
            ),
            "_connect": (
                "CommonOptions",
                "ConnectOptions",
                "connect",
            ),
            "_dispatch": (
                "OnElicitation",
                "OnNotification",
                "OnProgress",
            ),
            "_events": (
                "CallFinished",
                "CallStarted",
                "ConnectionChanged",
                "Event",
                "Retrying",
            ),
            "_evidence": (
                "Evidence",
                "GeneralEvidence",
                "checked_evidence",
                "keeping",
                "read_evidence",
            ),
            "_named_apps": (
                "app_entries",
                "find_app",
                "is_app_name",
                "shares_browser",
            ),
            "_resources": (
                "READ_HINT",
                "Resources",
            ),
            "_session": ("Session",),
            "_settings": (
                "Settings",
                "read_config",
                "require_known",
                "retention_settings",
                "routing_of",
                "settings_error",
                "settings_variables",
                "trust_found_file",
                "unknown_variables",
                "unread",
            ),
            "_sign_in": ("sign_in",),
            "_stores": ("open_configured_store",),
            "_targets": (
                "is_mcp_server",
                "reject_options",
                "transport_for",
            ),
            "_views": (
                "View",
                "ViewOptions",
                "ViewServer",
            ),
        },
    )
