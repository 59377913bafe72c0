"""``abp call --each``: one capability, called once for each line of a file over one connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ABPError, UsageError
from .answers import print_result, print_warnings
from .option_names import naming_options
from .output import evidence_lines, print_error, print_json, print_note, print_text
from .progress import ProgressBar

if TYPE_CHECKING:
    from ...session.session import Session

__all__ = ["call_each", "read_each"]


def read_each(file: Path, common: Mapping[str, object]) -> list[tuple[int, dict[str, object]]]:
    """Return the number and the parameters of each line of a JSON Lines file, except empty ones; a line's own replace
    the ``common`` ones. Raises :class:`~transports.errors.UsageError` for a line that is no JSON object, before any
    call is made."""
    from ...protocol.strict_json import json_lines

    try:
        with file.open("rb") as lines:
            found = json_lines(lines, f"--each {file}", "of parameters")
            out = [(number, {**common, **params}) for number, _, params in found]
    except OSError as error:
        raise UsageError(f"--each {file}: cannot be read ({error.strerror})") from error
    if not out:
        raise UsageError(f"--each {file} has no lines")
    return out


async def call_each(
    app: Session,
    capability: str,
    lines: Sequence[tuple[int, dict[str, object]]],
    *,
    timeout: float | None,
    bar: ProgressBar,
    as_json: bool,
) -> int:
    """Make the calls one after the other, print what each answers, and return the exit status: 1 if any failed.

    A failed call does not end the others, unless the session did not survive it. As JSON there is one document, whose
    ``results`` are those of ``abp call --json``, each with its ``line``."""
    results: list[dict[str, object]] = []
    failed = 0
    for count, (number, params) in enumerate(lines, 1):
        bar.set_label(f"{capability} {count}/{len(lines)}")
        try:
            result = await app.call(capability, params, timeout=timeout, on_progress=bar.on_progress)
        except ABPError as error:
            failed += 1
            naming_options(error)
            with bar.pause():
                print_error(error.code, f"line {number}: {error.message}", as_json=False, document=error.as_dict())
                for line in evidence_lines(error.evidence):
                    print_note(line)
            cancelled = getattr(error, "cancelled", False)
            results.append({"line": number, "success": False, "error": error.as_dict(), "cancelled": cancelled})
            if not error.session_survives:
                print_note(f"the session has ended; {len(lines) - count} lines were not called", always=True)
                break
        else:
            results.append({"line": number, **result.as_dict()})
            with bar.pause():
                if as_json:
                    print_warnings(result)
                else:
                    print_text(f"line {number}")
                    print_result(result)
    if as_json:
        print_json({"success": not failed, "results": results})
    if failed:
        print_note(f"{failed} of {len(lines)} calls failed", always=True)
    return 1 if failed else 0
