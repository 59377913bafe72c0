"""Errors as text for a model: message, advice on repeating, next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ABPError, ArtifactNotFound, UsageError, may_have_run, repeat_advice

#: Next step by code, the same on every surface.
_NEXT = {
    "CANCELLED": "ask the user whether to go on",
    "INVALID_ANSWER": "call again, and answer the app's question as it asks",
    "PERMISSION_REQUIRED": "ask the user",
    "PERMISSION_DENIED": "ask the user",
    "TRANSPORT_ERROR": "check the address, and whether the app runs",
    "BROWSER_ERROR": "have the user run `abp doctor`",
    "NOT_SUPPORTED": "check with the user that this app speaks ABP",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """Next steps of one surface, whose tools differ from those of others.

    ``by_code`` are steps by the code of the error, in which ``{again}`` is the advice on repeating the call. The others
    are for an artifact that is not there, a lost connection, and wrong arguments."""

    by_code: Mapping[str, str]
    no_artifact: str
    connect: str
    arguments: str


def error_lines(error: ABPError, advice: Advice) -> list[str]:
    """Return the lines about an error: message and code, whether to repeat the call, alternatives, next step."""
    lines = [f"{error.message} [{error.code}]"]
    if not error.retryable:
        lines.append("Retryable: no, not until something changes")
    elif error.retry_after is None:
        lines.append("Retryable: yes")
    else:
        lines.append(f"Retryable: yes, after {error.retry_after:g} s")
    if error.alternatives:
        lines.append(f"Alternatives: {', '.join(error.alternatives[:20])}")
    lines.append(f"Next: {_next_step(error, advice)}")
    return lines


def _next_step(error: ABPError, advice: Advice) -> str:
    if isinstance(error, ArtifactNotFound):
        return advice.no_artifact
    again = repeat_advice(error)
    step = advice.by_code.get(error.code) or _NEXT.get(error.code)
    if step:
        return step.format(again=again)
    argument = error.details.get("argument")
    if argument:
        return f"correct the argument {argument} and call again"
    if not error.session_survives:
        if error.retryable:
            return f"{again}; if that fails too, {advice.connect}"
        if may_have_run(error):
            return f"{advice.connect}; {again}"
        return advice.connect
    if isinstance(error, UsageError):
        return advice.arguments
    if error.retryable or may_have_run(error):
        return again
    return "do not repeat it unchanged; tell the user if there is no other way"
