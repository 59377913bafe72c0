"""Answer → artifacts → Result."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple, cast

from ..artifacts import ArtifactRef, ArtifactStore, HostFacade, HostStore, discover_store
from ..binary import BinaryData, Encoded
from ..binary.detect import Found, Place, contents, field_of, find, replace
from ..errors import ABPError, UsageError
from ..protocol.messages import Effect
from ..protocol.schema import check_output
from ..protocol.strict_json import JSONValue, encode_json
from ..protocol.urls import redact_url
from .blocks import opened
from .fetch import Fetcher
from .fields import Matched, matches
from .policy import RoutingPolicy, Step
from .presets import ABP
from .result import Result
from .sizes import long_texts, preview

__all__ = ["Router"]

#: Encoded content up to this many characters is decoded where it is; more is decoded in a thread, slice by slice.
_SMALL = 64 * 1024


class _Seen(NamedTuple):
    """What the layers found in an answer: the answer as they left it, its binaries, those that a rule named."""

    data: object
    found: list[Found]
    configured: Mapping[Place, Matched] = {}
    steps: Sequence[Step] = ()


class Router:
    """Stores every binary of an answer and puts a reference in its place. Usable alone, on results from anywhere::

        routed = await Router(store, policy=TABLEAU).route(tool_result, capability="download_workbook")

    ``policy`` says what is recognised, and how (seed 002 §4); the default is for apps that speak ABP.
    """

    def __init__(
        self,
        store: ArtifactStore | HostStore | HostFacade,
        *,
        fetcher: Fetcher | None = None,
        policy: RoutingPolicy | None = None,
    ) -> None:
        found = discover_store(store)
        if found is None:
            raise UsageError(f"Router() takes a store, ours or a host's, not a {type(store).__name__}")
        self._store = store = found
        self._fetcher = fetcher or Fetcher(limit=store.max_bytes)
        self._policy = policy or ABP
        self._guess_from = self._policy.min_guessed_chars if self._policy.heuristics else None

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
        were: its ``result`` holds those, its ``details`` the field, and the URL without credentials. What a policy's
        transformer raises comes as it is.
        """
        seen = self._plain(data) or await self._transformed(data, capability) or self._ruled(data, capability)
        data, found = seen.data, seen.found
        steps = list(seen.steps)
        beside = [Found(place, output) for place, output in zip(_places(data, found), outputs, strict=False)]
        record = {"capability": capability, **(source or {})}
        notes = list(warnings)
        summaries: list[str] = []
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
                    if rule := seen.configured.get(item.path):
                        summaries.append(rule.summary(ref))
                    layer = "fields" if rule else item.layer
                    steps.append(
                        Step(layer, item.field, f"{ref.mime_type}, {ref.size_bytes} bytes, stored as {ref.id}")
                    )
        finally:
            for item in waiting:  # cancelled: nobody will fetch these
                await self._fetcher.release(item.binary)
        for item in beside:
            replacements.pop(item.path, None)
        held = frozenset([item.field for item in found])
        routed = cast(JSONValue, replace(data, replacements))
        texts: Mapping[Place, JSONValue] = {}
        if not failures:
            alone = not found and not beside
            texts = await self._store_sizes(routed, capability, record, stored, steps, alone=alone)
        if schema:
            notes += check_output(schema, routed, [item.path for item in found])
        metadata = _metadata(data, found) if found or beside else {}
        took = 0.0 if started is None else (time.perf_counter() - started) * 1000
        result = Result(
            capability,
            routed,
            stored,
            transport,
            took,
            tuple(notes),
            tuple(effects),
            metadata,
            tuple(steps),
            tuple(summaries),
            texts,
            held,
        )
        if failures:
            raise self._failure(failures, result)
        return result

    # --- the layers of seed 002 §4.1 that look at the answer, in its order --------------------------------------------

    def _plain(self, data: object) -> _Seen | None:
        """The way of most answers: no transformer, no rules, no content blocks."""
        policy = self._policy
        if policy.transformer or policy.fields or (isinstance(data, dict) and isinstance(data.get("content"), list)):
            return None
        return _Seen(data, find(data, guess_from=self._guess_from))

    async def _transformed(self, data: object, capability: str) -> _Seen | None:
        """What the transformer made of the answer; ``None`` if it leaves it to the other layers."""
        if self._policy.transformer is None:
            return None
        before = contents(data)
        try:
            given = self._policy.transformer(capability, data)
            made = await given if inspect.isawaitable(given) else given
        except BaseException:
            await self._release(before, ())
            raise
        if made is None:
            return None
        found = contents(made)
        await self._release(before, found)
        return _Seen(made, found, {}, [Step("custom", "", "the transformer's answer; no other layer read it")])

    def _ruled(self, data: object, capability: str) -> _Seen:
        """Configured fields first, then what content blocks, descriptors and long texts hold beside them."""
        rules = self._policy.rules(capability)
        data, roots, steps = opened(data, rules, self._guess_from)
        configured = {match.place: match for match in matches(data, rules, roots)}
        found = [Found(place, match.binary) for place, match in configured.items()]
        found += [
            item
            for item in find(replace(data, dict.fromkeys(configured)), guess_from=self._guess_from)
            if not any(place[: len(item.path)] == item.path for place in configured)
        ]
        return _Seen(data, found, configured, steps)

    async def _release(self, before: Sequence[Found], after: Sequence[Found]) -> None:
        """Let go of content on the far side that a transformer left out."""
        kept = [item.binary.content for item in after if isinstance(item.binary, BinaryData)]
        for item in before:
            if isinstance(item.binary, BinaryData) and item.binary.content not in kept:
                await self._fetcher.release(item.binary)

    # --- storing ------------------------------------------------------------------------------------------------------

    async def _store_sizes(
        self,
        routed: JSONValue,
        capability: str,
        record: Mapping[str, object],
        stored: dict[str, ArtifactRef],
        steps: list[Step],
        *,
        alone: bool,
    ) -> dict[Place, JSONValue]:
        """The net for size: long texts, and the whole if it stands ``alone``, without binaries, or is large. Adds to
        ``stored`` and ``steps``; returns what agents see in the place of texts."""
        policy = self._policy
        encoded = _encoded(routed, capability)
        views: dict[Place, JSONValue] = {}
        if policy.max_inline_chars is not None and len(encoded) > policy.max_inline_chars:
            long = [item for item in long_texts(routed, policy.max_inline_chars) if field_of(item[0]) not in stored]
            for place, text, mime_type in sorted(long, key=lambda item: -len(item[1]))[: policy.max_texts]:
                ref = await self._store.put_text(text, mime_type=mime_type, namespace=capability, meta=record)
                stored[field_of(place)] = ref
                views[place] = preview(text, ref)
                steps.append(Step("size", field_of(place), f"{len(text):,} characters, also stored as {ref.id}"))
        large = policy.max_inline_bytes is not None and len(encoded) > policy.max_inline_bytes
        if alone or (large and "" not in stored):
            ref = await self._store.put_bytes(encoded, mime_type="application/json", namespace=capability, meta=record)
            stored[""] = ref
            if large:
                steps.append(Step("size", "", f"{len(encoded):,} bytes of JSON, also stored as {ref.id}"))
        return views

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
                meta=record,
            )
        try:
            async with self._store.stage() as staged:
                known = await self._fetcher.into(staged, binary)
                return await staged.commit(
                    size=known.size,
                    mime_type=known.mime_type,
                    filename=known.filename,
                    namespace=capability,
                    meta=record,
                )
        finally:
            await self._fetcher.release(binary)

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


def _encoded(routed: object, capability: str) -> bytes:
    try:
        return encode_json(routed)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{capability}: the result holds a value that is no JSON: {error}") from error


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
