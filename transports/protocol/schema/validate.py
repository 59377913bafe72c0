"""The checks of parameters and answers against the JSON Schema that a capability declares. No I/O.

The schema is the app's, so it is not trusted: it reaches no address, its patterns run on an engine without
backtracking, and how deep, how large and how much work it may be is bounded before the validator sees it
(docs/faults.md 21 and 23). A schema that is broken or out of bounds is the app's fault and never fails a call: it is
not checked, and a warning says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from ...binary.detect import Place, field_of, replace
from ...errors import ProtocolError, UsageError
from ..strict_json import decode_json, encode_json
from .files import misgiven_files
from .limits import MAX_NODES, MAX_STEPS, NotChecked, count_steps, count_values, references_and_patterns, shorten
from .messages import format_error, is_fault
from .unnamed import unnamed_params

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["check_output", "check_params", "check_value"]

#: Schemas that are remembered.
_MAX_SEEN = 64
#: Bytes of JSON; a larger schema is not checked.
_MAX_ENCODED = 256 * 1024
#: Values (and 64 characters of text count as one) of an instance that is checked.
_MAX_VALUES = 100_000
#: Steps of the validator above which faults are not listed: an error costs up to 40 µs.
_MAX_LISTING_STEPS = 2_000
#: Faults that are listed.
_MAX_LISTED = 5
#: Bytes that one pattern may take once compiled, and all of a schema together (measured: 3 ms for each megabyte).
_MAX_PATTERN_BYTES, _MAX_ALL_PATTERN_BYTES = 1 << 20, 6 << 20


def check_params(
    capability: str, schema: Mapping[str, object], params: object, content: Iterable[Place] = ()
) -> list[str]:
    """Check the ``params`` of a call against the capability's ``inputSchema``, and return warnings: why the schema was
    not checked.

    ``content`` are the paths of binaries (:func:`~.binary.params.prepare_params`): apps declare those as text, as an
    object, or not at all, so nothing at or below them is a fault.

    Raises :class:`~transports.errors.UsageError` with ``details`` ``{"path": "options.margin", "faults": [...]}``; at
    most five faults are listed. The message also has the hints of :func:`.unnamed_params`: a parameter that is missing
    may have been misspelt.
    """
    try:
        faults = _faults(schema, params, content)
    except NotChecked as reason:
        return [f"{capability}: the parameters were not checked against inputSchema: {reason}"]
    if faults:
        listed = [fault.message("params") for fault in faults]
        more = f"; and {'at least ' * (len(listed) == _MAX_LISTED)}{len(listed) - 1} more" if len(listed) > 1 else ""
        details = {"path": field_of(faults[0].place), "faults": listed}
        message = "; ".join(
            (f"{capability}: {listed[0]}{more}", *misgiven_files(schema, params), *unnamed_params(schema, params))
        )
        raise UsageError(message, details=details)
    return []


def check_output(schema: Mapping[str, object], data: object, content: Iterable[Place] = ()) -> list[str]:
    """Return how an answer's ``data`` differs from the capability's ``outputSchema``, as warnings, at most five. Raises
    nothing: an answer is never refused for its schema.

    ``content`` are the paths of binaries (:func:`~.binary.detect.find`), which count as for :func:`check_params`.
    """
    try:
        return [f"outputSchema: {fault.message('data')}" for fault in _faults(schema, data, content)]
    except NotChecked as reason:
        return [f"the answer was not checked against outputSchema: {reason}"]


def check_value(schema: Mapping[str, object], value: object, name: str) -> list[str]:
    """Return how ``value``, called ``name``, differs from ``schema``: at most five faults with their places, none where
    the schema cannot be checked."""
    try:
        return [fault.message(name) for fault in _faults(schema, value, ())]
    except NotChecked:
        return []


@dataclass(frozen=True, slots=True)
class _Fault:
    place: Place
    text: str

    def message(self, root: str) -> str:
        return f"{'.'.join(filter(None, (root, field_of(self.place))))}: {self.text}"


def _faults(schema: Mapping[str, object], data: object, content: Iterable[Place]) -> list[_Fault]:
    """Return the first faults of ``data``, none if it is valid. A schema is read once: it must not change."""
    if not schema:
        return []
    places = tuple(content)
    _, compiled = known if (known := _seen.get(id(schema))) and known[0] is schema else _read(schema)
    if isinstance(compiled, str):
        raise NotChecked(compiled)
    tree = replace(data, dict.fromkeys(places))
    values = count_values(tree, _MAX_VALUES, "the value")
    steps = 0
    if compiled.references or values * compiled.nodes > MAX_STEPS:
        steps = count_steps(compiled.schema, tree)
    try:
        if compiled.validator.is_valid(tree):
            return []
        if (steps or count_steps(compiled.schema, tree)) > _MAX_LISTING_STEPS:
            raise NotChecked("it does not fit, but is too large to say where")
        errors = (error for error in compiled.validator.iter_errors(tree) if is_fault(error, places))
        faults = dict.fromkeys(_Fault(tuple(error.instance_path), format_error(error, places)) for error in errors)
        return list(islice(faults, _MAX_LISTED))
    except ValueError as error:  # a value that is no JSON, or an integer with thousands of digits
        raise NotChecked(shorten(str(error))) from None


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: jsonschema_rs.Validator
    schema: dict[str, object]
    nodes: int
    references: bool


#: Schemas that were read, by :func:`id`: an app's are there as long as its session, and each call asks for one.
_seen: OrderedDict[int, tuple[Mapping[str, object], _Compiled | str]] = OrderedDict()


def _read(schema: Mapping[str, object]) -> tuple[Mapping[str, object], _Compiled | str]:
    """Return a schema and its validator, or why there is none, and remember both."""
    try:
        encoded = encode_json(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotChecked(f"the schema is no JSON: {error}") from None
    if len(encoded) > _MAX_ENCODED:
        raise NotChecked(f"the schema takes {len(encoded):,} bytes, more than {_MAX_ENCODED:,}")
    read = _seen[id(schema)] = schema, _compiled(encoded)
    if len(_seen) > _MAX_SEEN:
        _seen.popitem(last=False)
    return read


@lru_cache(maxsize=_MAX_SEEN)
def _compiled(encoded: bytes) -> _Compiled | str:
    """Return the validator of a schema, or why there is none."""
    import jsonschema_rs  # late: a session loads it while its transport opens

    try:
        schema = decode_json(encoded)
        assert isinstance(schema, dict)
        nodes = count_values(schema, MAX_NODES, "the schema")
        references, patterns = references_and_patterns(schema)
        limit = min(_MAX_PATTERN_BYTES, _MAX_ALL_PATTERN_BYTES // max(patterns, 1))
        validator = jsonschema_rs.validator_for(
            schema,
            validate_formats=False,
            offline=True,
            # The linear engine, without look-around and back references: those backtrack, without a bound in time.
            pattern_options=jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=limit),
        )
    except NotChecked as reason:
        return str(reason)
    except (ValueError, ProtocolError) as error:
        problem = shorten(str(getattr(error, "message", error)))
        too_large = ", or all patterns together are too large" if problem.endswith('is not a "regex"') else ""
        return f"the schema cannot be used: {problem}{too_large}"
    return _Compiled(validator, schema, nodes, references)
