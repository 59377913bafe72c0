"""Results of calls for people: the printing, and a result made of its own document."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...protocol import plain_json
from ._output import evidence_lines, print_note, print_text

if TYPE_CHECKING:
    from ...routing import Result

#: Characters of a summary: enough for hundreds of files.
_MAX_SUMMARY = 100_000


def print_result(result: Result) -> None:
    """Print a result for people. A small answer without files is printed itself, indented and in colour on a terminal,
    otherwise as one line of JSON, followed by its place in the store. Warnings go to stderr."""
    print_warnings(result)
    on_terminal = sys.stdout is not None and sys.stdout.isatty() and result.small_answer() is not None
    if on_terminal:
        _print_value(result.data)
    print_text(replace(result, warnings=()).summary(max_chars=_MAX_SUMMARY, with_answer=not on_terminal))
    for line in evidence_lines(result.evidence):
        print_text(line)


def print_warnings(result: Result) -> None:
    """Print the warnings of a result on stderr, a line each."""
    for warning in result.warnings:
        print_note(f"warning: {warning}")


def _print_value(value: object) -> None:
    """Print JSON in colour, if the terminal supports colour and ``NO_COLOR`` is not set."""
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    text = plain_json(json.dumps(value, indent=2, ensure_ascii=False))
    encoding = sys.stdout.encoding or "utf-8"
    coloured = JSONHighlighter()(text.encode(encoding, "replace").decode(encoding))
    Console(file=sys.stdout).print(coloured, soft_wrap=True)


def result_of(document: Mapping[str, Any]) -> Result:
    """Return the result that a document of ``abp call --json`` describes, as far as it is printed."""
    from ...artifacts import ArtifactRef
    from ...protocol.messages import Effect
    from ...routing import Result

    def reference(one: Mapping[str, Any]) -> ArtifactRef:
        said = {name: one[name] for name in ("truncated", "warning", "preview") if name in one}
        named = {name: one[name] for name in ("id", "filename", "mime_type", "size_bytes", "sha256")}
        return ArtifactRef(uri=one["uri"] or "", local_path=one["path"], source=said, **named)

    data = document["data"]
    artifacts = {one["field"]: reference(one) for one in document["artifacts"]}
    inline = frozenset(place for place, ref in artifacts.items() if _holds(data, place, ref.id))
    first = {re.split(r"(?<!\\)\.", place)[0] for place in inline}
    beside = data if isinstance(data, dict) and artifacts.keys() != {""} else {}
    return Result(
        document["capability"],
        data,
        artifacts,
        warnings=tuple(document["warnings"]),
        effects=tuple(Effect(one["kind"], one["call"], one["detail"]) for one in document.get("effects", ())),
        metadata={key: value for key, value in beside.items() if key.replace(".", "\\.") not in first},
        inline_fields=inline,
        evidence={one["kind"]: reference(one) for one in document.get("evidence", ())},
    )


def _holds(data: Any, place: str, artifact_id: str) -> bool:
    """Return whether the reference of an artifact stands at its place in the data."""
    for step in re.split(r"(?<!\\)\.", place) if place else ():
        key = re.sub(r"\\(.)", r"\1", step)
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, dict) and key in data:
            data = data[key]
        else:
            return False
    return isinstance(data, dict) and data.get("id") == artifact_id
