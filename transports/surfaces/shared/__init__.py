"""Common parts of the surfaces: connected apps, activity log, detached calls, watcher of a store, questions as forms,
capabilities as tools, previews of files, errors for models, connection limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_names

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
    from ._advice import Advice as Advice, error_lines as error_lines
    from ._apps import (
        App as App,
        Apps as Apps,
        Connect as Connect,
        PendingCall as PendingCall,
        adapter_options as adapter_options,
        listed_in as listed_in,
        pooled as pooled,
    )
    from ._capability_tools import (
        MAX_TOOLS as MAX_TOOLS,
        free_tool_name as free_tool_name,
        parameters_line as parameters_line,
        tool_description as tool_description,
        tool_hints as tool_hints,
        tool_name as tool_name,
        tool_schema as tool_schema,
        type_name as type_name,
        with_tool_names as with_tool_names,
    )
    from ._columns import aligned_rows as aligned_rows
    from ._connections import SLOW_BODY as SLOW_BODY, Connections as Connections, in_time as in_time
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
    from ._model_schemas import ModelSchema as ModelSchema, app_arguments as app_arguments, model_schema as model_schema
    from ._previews import (
        ImageLimits as ImageLimits,
        Page as Page,
        Picture as Picture,
        Pictures as Pictures,
        document_text as document_text,
        read_page as read_page,
        read_pictures as read_pictures,
        read_texts as read_texts,
    )
    from ._question import Question as Question, question_of as question_of, question_text as question_text
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
            "_advice": (
                "Advice",
                "error_lines",
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
            "_capability_tools": (
                "MAX_TOOLS",
                "free_tool_name",
                "parameters_line",
                "tool_description",
                "tool_hints",
                "tool_name",
                "tool_schema",
                "type_name",
                "with_tool_names",
            ),
            "_columns": ("aligned_rows",),
            "_connections": (
                "Connections",
                "SLOW_BODY",
                "in_time",
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
            "_model_schemas": (
                "ModelSchema",
                "app_arguments",
                "model_schema",
            ),
            "_previews": (
                "ImageLimits",
                "Page",
                "Picture",
                "Pictures",
                "document_text",
                "read_page",
                "read_pictures",
                "read_texts",
            ),
            "_question": (
                "Question",
                "question_of",
                "question_text",
            ),
            "_store_watcher": (
                "StoreChange",
                "StoreWatcher",
            ),
        },
    )
