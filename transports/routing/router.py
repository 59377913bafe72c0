"""Answer → artifacts → Result."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import cast

from ..artifacts import ArtifactRef, ArtifactStore
from ..binary import BinaryData, Encoded
from ..detect import Found, Place, find, replace
from ..errors import ABPError, UsageError, redact_url
from ..messages import Effect, JSONValue, encode_json
from ..schema import differences
from .fetch import Fetcher
from .result import Result

__all__ = ["Router"]

#: Encoded content up to this many characters is decoded where it is; more is decoded in a thread, slice by slice.
_SMALL = 64 * 1024


class Router:
    """Stores every binary of an answer and puts a reference in its place. Usable alone, on results from anywhere::

    routed = await Router(store).route(tool_result, capability="download_workbook")
    """

    def __init__(self, store: ArtifactStore, *, fetcher: Fetcher | None = None) -> None:
        self._store = store
        self._fetcher = fetcher or Fetcher(limit=store.max_bytes)

    async def route(
        self,
        data: object,
        *,
        capability: str,
        outputs: Sequence[BinaryData] = (),
        source: Mapping[str, object] | None = None,
        warnings: Sequence[str] = (),
        effects: Sequence[Effect] = (),
        transport: str = "",
        started: float | None = None,
        schema: Mapping[str, object] | None = None,
    ) -> Result:
        """Route ``data``, any tree of JSON values and content; ``outputs`` are binaries that came beside it,
        ``effects`` what was done. ``started`` is when the work began, as :func:`time.perf_counter` has it. What differs
        from ``schema``, the capability's ``outputSchema``, becomes a warning.

        Raises the first :class:`~transports.errors.ABPError` of a binary that could not be stored, after all others
        were: its ``result`` holds those, its ``details`` the field, and the URL without credentials.
        """
        found = find(data)
        beside = [Found(place, output) for place, output in zip(_places(data, found), outputs, strict=False)]
        record = {"capability": capability, **(source or {})}
        notes = list(warnings)
        stored: dict[str, ArtifactRef] = {}
        replacements: dict[Place, object] = {}
        failures: list[tuple[Found, ABPError]] = []
        waiting = deque((*found, *beside))
        try:
            while waiting:
                item = waiting.popleft()
                try:
                    ref = await self._store_one(item, capability, record)
                except ABPError as error:
                    failures.append((item, error))
                    replacements[item.path] = {"error": error.as_dict()}
                else:
                    stored[item.field] = ref
                    replacements[item.path] = _reference(ref, item)
                    notes += [f"{item.field or 'answer'}: {warning}" for warning in _texts(ref.source.get("warnings"))]
        finally:
            for item in waiting:  # cancelled: nobody will fetch these
                await self._fetcher.release(item.binary)
        for item in beside:
            replacements.pop(item.path, None)
        if not found and not beside:
            stored[""] = await self._store_json(data, capability, record)
        routed = cast(JSONValue, replace(data, replacements))
        if schema:
            notes += differences(schema, routed, [item.path for item in found])
        metadata = _metadata(data, found) if found or beside else {}
        took = 0.0 if started is None else (time.perf_counter() - started) * 1000
        result = Result(capability, routed, stored, transport, took, tuple(notes), tuple(effects), metadata)
        if failures:
            raise self._failure(failures, result)
        return result

    async def _store_one(self, item: Found, capability: str, record: Mapping[str, object]) -> ArtifactRef:
        binary = item.binary
        if isinstance(binary, ABPError):
            raise binary
        content = binary.content
        if isinstance(content, bytes) or (isinstance(content, Encoded) and len(content.text) <= _SMALL):
            return await self._store.put_bytes(
                content if isinstance(content, bytes) else b"".join(binary.chunks()),
                size=binary.size,
                mime_type=binary.mime_type,
                filename=binary.filename,
                namespace=capability,
                source=record,
            )
        try:
            async with self._store.stage() as staged:
                known = await self._fetcher.into(staged, binary)
                return await staged.commit(
                    size=known.size,
                    mime_type=known.mime_type,
                    filename=known.filename,
                    namespace=capability,
                    source=record,
                )
        finally:
            await self._fetcher.release(binary)

    async def _store_json(self, data: object, capability: str, record: Mapping[str, object]) -> ArtifactRef:
        try:
            text = encode_json(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{capability}: the result holds a value that is no JSON: {error}") from error
        return await self._store.put_bytes(text, mime_type="application/json", namespace=capability, source=record)

    def _failure(self, failures: Sequence[tuple[Found, ABPError]], result: Result) -> ABPError:
        item, error = failures[0]
        error.details.setdefault("field", item.field)
        if isinstance(item.binary, BinaryData) and (url := self._fetcher.address(item.binary)):
            error.details.setdefault("url", redact_url(url))
        if len(failures) > 1:
            error.details["also_failed"] = [other.field for other, _ in failures[1:]]
        error.result = result
        return error


def _places(data: object, found: Sequence[Found]) -> Iterator[Place]:
    """Places for outputs that stand beside an answer. An answer's own binaries come first (seed 000's rule)."""
    free = not found and not (isinstance(data, dict) and "document" in data)
    if free:
        yield ("document",)
    taken = {item.path for item in found}
    yield from (place for n in count(1 if free else 0) if (place := ("captured", n)) not in taken)


def _reference(ref: ArtifactRef, item: Found) -> dict[str, object]:
    extra = item.binary.extra if isinstance(item.binary, BinaryData) else {}
    return {**ref.as_dict(), "metadata": dict(extra)} if extra else ref.as_dict()


def _metadata(data: object, found: Sequence[Found]) -> Mapping[str, object]:
    """The siblings of the binaries (seed 000 "Nested Binary Data Detection")."""
    if found and found[0].path == ():
        return found[0].binary.extra if isinstance(found[0].binary, BinaryData) else {}
    taken = {item.path[0] for item in found}
    return {key: value for key, value in data.items() if str(key) not in taken} if isinstance(data, dict) else {}


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []
