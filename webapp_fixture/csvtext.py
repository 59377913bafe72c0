"""CSV exactly as ``static/lib/csv.js`` reads and writes it, so that the bytes are the same over every transport."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from webapp_fixture.errors import AbpError

Row = dict[str, Any]
_SPECIAL = re.compile('[",\r\n]')
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


def number_text(value: float) -> str:
    """Return a number as JavaScript's ``String(value)`` writes it."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    has_no_exponent = 1e-6 <= abs(number) < 1e21
    if has_no_exponent:
        return f"{Decimal(repr(number)):f}".removesuffix(".0")
    # Python writes at least two digits of an exponent.
    return re.sub(r"(?<=e[+-])0", "", repr(number))


def js_text(value: Any) -> str:
    """Return a JSON value as JavaScript's ``String(value)`` writes it, and an empty text for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if isinstance(value, list):
        return ",".join(map(js_text, value))
    return value if isinstance(value, str) else "[object Object]"


def encode(text: str) -> bytes:
    """Encode text as UTF-8 like ``TextEncoder``: a lone surrogate becomes U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text).encode()


def _keys(row: Row) -> Iterable[str]:
    """The keys in JavaScript's order: those that look like array indices first, by number."""
    numeric = {key for key in row if _INDEX.fullmatch(key) and int(key) < 2**32 - 1}
    return [*sorted(numeric, key=int), *(key for key in row if key not in numeric)]


def _cell(value: Any) -> str:
    text = js_text(value)
    if not _SPECIAL.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def format_csv(rows: list[Row]) -> str:
    """Return objects as CSV. The columns are all keys, in the order of their first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in _keys(row)))
    lines: list[list[Any]] = [columns, *([row.get(column) for column in columns] for row in rows)]
    return "".join(",".join(map(_cell, line)) + "\r\n" for line in lines)


def parse_csv(text: str) -> list[list[str]]:
    """Return the rows of cells of CSV text (RFC 4180). Empty lines are skipped."""
    rows: list[list[str]] = []
    row: list[str] = []
    cell: list[str] = []
    quoted = False
    index, end = 0, len(text)
    while index < end:
        char = text[index]
        if quoted:
            if char != '"':
                cell.append(char)
            elif text[index + 1 : index + 2] == '"':
                cell.append('"')
                index += 1  # two quotes stand for one
            else:
                quoted = False
        elif char == '"' and not cell:
            quoted = True
        elif char == ",":
            row.append("".join(cell))
            cell = []
        elif char == "\n":
            _end_row(rows, row, cell)
            row, cell = [], []
        elif char != "\r":
            cell.append(char)
        index += 1
    if quoted:
        raise AbpError("INVALID_PARAMS", "csv has a quote that is never closed")
    _end_row(rows, row, cell)
    return rows


def _end_row(rows: list[list[str]], row: list[str], cell: list[str]) -> None:
    row.append("".join(cell))
    if len(row) > 1 or row[0]:
        rows.append(row)


def _value(cell: str) -> str | int | float:
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return cell
    number = float(cell)
    return int(number) if number.is_integer() else number


def csv_to_items(text: str) -> list[Row]:
    """Return CSV with a header line as objects. Cells that are plain numbers become numbers."""
    header, *rows = parse_csv(text) or [[]]
    return [
        {name: _value(row[column] if column < len(row) else "") for column, name in enumerate(header)} for row in rows
    ]
