"""Common parts of the surfaces: connected apps, activity log, detached calls, watcher of a store, questions as forms,
connection limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from ._activity import (
        Activity as Activity,
        CallRecord as CallRecord,
        ConnectedApp as ConnectedApp,
        Entry as Entry,
        LogGap as LogGap,
        Subject as Subject,
        call_record as call_record,
    )
    from ._apps import (
        App as App,
        Apps as Apps,
        Connect as Connect,
        PendingCall as PendingCall,
        adapter_options as adapter_options,
        listed_in as listed_in,
        pooled as pooled,
    )
    from ._connections import SLOW_BODY as SLOW_BODY, BodyDeadline as BodyDeadline, Connections as Connections
    from ._detached import (
        MAX_AGE as MAX_AGE,
        MAX_CONNECTIONS as MAX_CONNECTIONS,
        CallLedger as CallLedger,
        DetachedCalls as DetachedCalls,
        KeptCall as KeptCall,
        KeptConnection as KeptConnection,
        MakeContent as MakeContent,
    )
    from ._listening import base_url as base_url, cannot_listen as cannot_listen, parse_address as parse_address
    from ._metrics_server import serve_metrics as serve_metrics
    from ._question import Question as Question, question_of as question_of
    from ._store_watcher import StoreChange as StoreChange, StoreWatcher as StoreWatcher
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_activity": (
                "Activity",
                "CallRecord",
                "ConnectedApp",
                "Entry",
                "LogGap",
                "Subject",
                "call_record",
            ),
            "_apps": (
                "App",
                "Apps",
                "Connect",
                "PendingCall",
                "adapter_options",
                "listed_in",
                "pooled",
            ),
            "_connections": (
                "BodyDeadline",
                "Connections",
                "SLOW_BODY",
            ),
            "_detached": (
                "CallLedger",
                "DetachedCalls",
                "KeptCall",
                "KeptConnection",
                "MAX_AGE",
                "MAX_CONNECTIONS",
                "MakeContent",
            ),
            "_listening": (
                "base_url",
                "cannot_listen",
                "parse_address",
            ),
            "_metrics_server": ("serve_metrics",),
            "_question": (
                "Question",
                "question_of",
            ),
            "_store_watcher": (
                "StoreChange",
                "StoreWatcher",
            ),
        },
    )
