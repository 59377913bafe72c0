"""ABP without I/O: messages, envelope, pending replies, capabilities, schemas.

* :mod:`.messages` — :class:`~.messages.Message`, the unit of a transport; pending requests and their replies.
* :mod:`._declarations`, :mod:`._payloads` — models of an app's declarations and messages.
* :mod:`._strict_json` — strict JSON parser and encoder, with bounds.
* :mod:`.binary`, :mod:`._media`, :mod:`._find_content` — binary content: strict decoding and verification, MIME types
  and file names, where it is in an answer. Nothing of it does I/O, except that a local file is opened when it is read.
* :mod:`._capabilities` — lists of capabilities: merge, changes, suggestions; the answer to a call.
* :mod:`._elicitation` — answers to questions: options, defaults, validation.
* :mod:`.schema` — validation of parameters and answers against an app's JSON Schemas.
* :mod:`._plain_text` — sanitizing of an app's texts; URLs: redaction, origins.
* :mod:`._times` — timeouts, durations and timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._capabilities import (
        MANY as MANY,
        MAX_CAPABILITIES as MAX_CAPABILITIES,
        Capabilities as Capabilities,
        CapabilitiesChanged as CapabilitiesChanged,
        answered_data as answered_data,
        deprecation_warnings as deprecation_warnings,
        find_capability as find_capability,
        is_long as is_long,
        response_metadata as response_metadata,
        with_suggestions as with_suggestions,
    )
    from ._declarations import (
        AppInfo as AppInfo,
        Capability as Capability,
        Manifest as Manifest,
        Resource as Resource,
        ResourceTemplate as ResourceTemplate,
        parse as parse,
    )
    from ._elicitation import (
        DECLINED as DECLINED,
        INVALID_ANSWER as INVALID_ANSWER,
        answer_fault as answer_fault,
        default_answer as default_answer,
        options_of as options_of,
        refused_answer as refused_answer,
    )
    from ._payloads import (
        Answer as Answer,
        ElicitationRequest as ElicitationRequest,
        Initialized as Initialized,
        Notification as Notification,
        Progress as Progress,
    )
    from ._plain_text import (
        folder_of as folder_of,
        is_address as is_address,
        is_loopback as is_loopback,
        is_page as is_page,
        origin_of as origin_of,
        plain_json as plain_json,
        plain_line as plain_line,
        plain_schema as plain_schema,
        plain_text as plain_text,
        plain_tree as plain_tree,
        redact_url as redact_url,
        similar_names as similar_names,
    )
    from ._strict_json import (
        MAX_JSON_DEPTH as MAX_JSON_DEPTH,
        MAX_LISTED as MAX_LISTED,
        MAX_ON_LOOP as MAX_ON_LOOP,
        MAX_REQUESTED as MAX_REQUESTED,
        MAX_VALUES as MAX_VALUES,
        PARSED_ON_LOOP as PARSED_ON_LOOP,
        JSONValue as JSONValue,
        OverLimit as OverLimit,
        ValueCounter as ValueCounter,
        decode_given as decode_given,
        decode_json as decode_json,
        encode_json as encode_json,
        has_more_levels as has_more_levels,
        has_more_values as has_more_values,
        inner_values as inner_values,
        is_deeper as is_deeper,
        is_larger as is_larger,
        json_lines as json_lines,
        parser_limits as parser_limits,
        without_collection as without_collection,
        without_half_pairs as without_half_pairs,
    )
    from ._times import (
        MAX_TIMEOUT as MAX_TIMEOUT,
        TIMER_TOLERANCE as TIMER_TOLERANCE,
        checked_timeout as checked_timeout,
        format_duration as format_duration,
        is_timeout as is_timeout,
        iso_utc as iso_utc,
        parse_duration as parse_duration,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_capabilities": (
                "Capabilities",
                "CapabilitiesChanged",
                "MANY",
                "MAX_CAPABILITIES",
                "answered_data",
                "deprecation_warnings",
                "find_capability",
                "is_long",
                "response_metadata",
                "with_suggestions",
            ),
            "_declarations": (
                "AppInfo",
                "Capability",
                "Manifest",
                "Resource",
                "ResourceTemplate",
                "parse",
            ),
            "_elicitation": (
                "DECLINED",
                "INVALID_ANSWER",
                "answer_fault",
                "default_answer",
                "options_of",
                "refused_answer",
            ),
            "_payloads": (
                "Answer",
                "ElicitationRequest",
                "Initialized",
                "Notification",
                "Progress",
            ),
            "_plain_text": (
                "folder_of",
                "is_address",
                "is_loopback",
                "is_page",
                "origin_of",
                "plain_json",
                "plain_line",
                "plain_schema",
                "plain_text",
                "plain_tree",
                "redact_url",
                "similar_names",
            ),
            "_strict_json": (
                "JSONValue",
                "MAX_JSON_DEPTH",
                "MAX_LISTED",
                "MAX_ON_LOOP",
                "MAX_REQUESTED",
                "MAX_VALUES",
                "OverLimit",
                "PARSED_ON_LOOP",
                "ValueCounter",
                "decode_given",
                "decode_json",
                "encode_json",
                "has_more_levels",
                "has_more_values",
                "inner_values",
                "is_deeper",
                "is_larger",
                "json_lines",
                "parser_limits",
                "without_collection",
                "without_half_pairs",
            ),
            "_times": (
                "MAX_TIMEOUT",
                "TIMER_TOLERANCE",
                "checked_timeout",
                "format_duration",
                "is_timeout",
                "iso_utc",
                "parse_duration",
            ),
        },
    )
